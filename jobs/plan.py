"""Say what ingest, training and dedup would take on machines that need not be there.

python jobs/plan.py --questions 24e6 --gpus 8
"""

from dupq.cli.start import job

VERSION = "0.1.0"

if __name__ == "__main__":
    job("plan", VERSION)
