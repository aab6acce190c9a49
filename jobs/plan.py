"""Say what dedup would take for another number of questions, from what a finished run took.

python jobs/plan.py --questions 24e6 --run runs
"""

from dupq.cli import job

VERSION = "0.2.0"

if __name__ == "__main__":
    job("plan", VERSION)
