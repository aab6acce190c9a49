r"""Measure an encoder, BM25 and shingle-Jaccard on an archive's known duplicates.

python jobs/evaluate.py --questions out/cs/questions --links out/cs/links --encoder out/cs/encoder \
        --output out/cs/quality
python jobs/evaluate.py --questions out/cs/questions --links labels.tsv --encoder out/cs/encoder --output out/cs/quality
"""

from dupq.cli import job

VERSION = "0.2.0"

if __name__ == "__main__":
    job("evaluate", VERSION)
