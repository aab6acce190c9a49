"""`python -m dupq.sample FOLDER` writes the sample archive."""

from dupq.sample.questions import main

raise SystemExit(main())
