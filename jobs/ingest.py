"""Stack Exchange dumps to tables.

python jobs/ingest.py --dump cs.stackexchange.com.7z --output out/cs
python jobs/ingest.py --dump faq.csv --title question --text answer --output out/faq
ray submit cluster.yaml jobs/ingest.py -- --dump s3://bucket/dumps --output s3://bucket/archive
"""

from dupq.cli import job

VERSION = "0.2.0"

if __name__ == "__main__":
    job("ingest", VERSION)
