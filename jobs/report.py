"""Write a run's report.html anew.

python jobs/report.py --run out/cs/runs/RUN_ID
"""

from dupq.cli import job

VERSION = "0.2.0"

if __name__ == "__main__":
    job("report", VERSION)
