"""Train an encoder on an archive's own text and duplicate links.

python jobs/train.py --questions out/cs/questions --links out/cs/links --output out/cs/encoder
"""

from dupq.cli import job

VERSION = "0.2.0"

if __name__ == "__main__":
    job("train", VERSION)
