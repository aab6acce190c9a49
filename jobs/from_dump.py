"""From a dump to clusters: ingest, train and dedup, one after the other.

python jobs/from_dump.py --dump cs.stackexchange.com.7z --output out/cs
"""

from dupq.cli import job

VERSION = "0.2.0"

if __name__ == "__main__":
    job("from_dump", VERSION)
