"""`python -m dupq.sample FOLDER` writes the sample archive."""

from dupq.sample.archive import main

main()
