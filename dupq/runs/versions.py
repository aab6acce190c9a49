"""The version of each stage's algorithm, part of a run's identity: other answers make another run.

Raise a stage's number when it answers differently, and say so in CHANGELOG.md. A new comment, name or report template
is no new answer. tests/golden/ fails where an answer changed and its number did not.
"""

INGEST = {"ingest": 2}
TRAINING = {"inputs": 1, "texts": 2, "answer_texts": 2, "pairs": 1, "prepare": 3, "teach": 1, "fit": 5, "save": 2}
DEDUP = {
    "inputs": 1,
    "texts": 2,
    "signatures": 2,
    "near_duplicates": 3,
    "fitness": 1,
    "encode": 2,
    "terms": 2,
    "neighbours": 6,
    "calibrate": 5,
    "beyond_lists": 1,
    "pairs": 2,
    "partition": 2,
    "clusters": 3,
    "evaluate": 7,
    "review": 2,
}
TEACHER = {"teacher": 2}  # the stage that a run has besides, if it was given a teacher
EVALUATION = {name: DEDUP[name] for name in ("inputs", "texts", "encode")}
