"""Find the duplicate questions of an archive: the nightly job.

python jobs/dedup.py --questions out/cs/questions --encoder out/cs/encoder --output out/cs/runs
ray submit cluster.yaml jobs/dedup.py -- --questions s3://… --encoder s3://… --output s3://…/runs
"""

from dupq.cli import job

VERSION = "0.2.0"

if __name__ == "__main__":
    job("dedup", VERSION)
