"""`python -m dupq.sample FOLDER` writes the sample archive."""

from dupq.sample.made_dump import main

main()
