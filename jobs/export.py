"""Write a finished run in the format of another tool.

python jobs/export.py --run out/cs/runs --to embedding-atlas --output out/cs/atlas
"""

from dupq.cli import job

VERSION = "0.2.0"

if __name__ == "__main__":
    job("export", VERSION)
