"""`python -m examples.sample FOLDER` writes the sample archive."""

from examples.sample.questions import main

raise SystemExit(main())
