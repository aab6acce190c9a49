"""Questions in Arabic: the recurrent and the convolutional encoders beside a cosine of bags of words.

    python benchmarks/arabic.py [--quick] [--json FILE] [--presets NAME …] [--set SECTION.NAME=VALUE …] [--work FOLDER]

The data are the labelled pairs of NSURL-2019 task 8 (`arabic/pairs.tsv`): 9,597 pairs of short questions, most of them
much alike whether duplicates or not. Texts are read with text.language=arabic and text.arabic=normalised. Sets of
duplicates are split into training, development and test parts as for every encoder; a pair labelled 0 is of the test
part if it has a question of that, else of the development part if it has one of that, and is left out if its other
question was trained on. Each system calls a pair a duplicate from the score that is best on development pairs;
`roc_auc` needs no such score. Beside each encoder: the cosine of the counts of the same words.

The presets are made for texts of an archive and random negatives. What does better here, the CNN scored by cosine:

    python benchmarks/arabic.py --presets othman-lstm --set training.negatives=0 --set training.positives=links \\
        --set encoder.word_vectors=learned
    python benchmarks/arabic.py --presets othman-cnn --set training.negatives=0 --set training.positives=links \\
        --set encoder.word_vectors=learned --set encoder.similarity=cosine --set encoder.units=200 \\
        --set training.learning_rate=0.001

Reads DUPQ_SHARED_DATA (default: ../shared/data).
"""

import argparse
import csv
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.metrics import roc_auc_score

from dupq.archive import question_shards
from dupq.encoders.encoding import encode
from dupq.encoders.saved import SavedEncoder, load, read_split
from dupq.evaluation.measures import accuracy, best_threshold
from dupq.job import cluster
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import pair_scores
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train
from dupq.text.languages import normaliser_of
from dupq.text.tokens import tokens

SITE = "arabic"
PRESETS = ["othman-lstm", "othman-gru", "othman-alstm", "othman-cnn", "dos-santos-bow-cnn"]
ARABIC = ("text.language=arabic", "text.arabic=normalised")
QUICK = ("training.epochs=1", "word_vectors.epochs=1", "training.pairs=200")


class Pairs(NamedTuple):
    """Labelled pairs: ids (int64, shape (m, 2)) and 1 or 0."""

    ids: np.ndarray
    labels: np.ndarray

    def of(self, rows: np.ndarray) -> "Pairs":
        return Pairs(self.ids[rows], self.labels[rows])


def main() -> None:
    """Train and measure each preset; print a table, write the JSON."""
    options = arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    texts, pairs = read(options.data / "arabic" / "pairs.tsv")
    write_tables(options.work, texts, pairs)
    cluster.connect("local")
    archive = str(options.work / "archive")
    ingest(IngestJob((str(options.work / "questions.tsv"),), archive, SITE))
    more = (*ARABIC, *options.set, *(QUICK if options.quick else ()))
    figures: dict[str, Any] = {}
    for preset in options.presets:
        encoder = str(options.work / preset)
        train(TrainingJob(f"{archive}/questions", None, encoder, preset, more, 1, (str(options.work / "pairs.tsv"),)))
        figures[preset] = measure(encoder, f"{archive}/questions", texts, pairs)
        print(f"{preset}: {figures[preset]}", flush=True)
    print(table(figures))
    if options.json:
        about = {"date": time.strftime("%Y-%m-%d"), "set": [*more]}
        Path(options.json).write_text(json.dumps({**figures, **about}, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one epoch on 200 pairs: does it run?")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--presets", nargs="+", metavar="NAME", default=PRESETS)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="a setting of all")
    parser.add_argument("--work", type=Path, metavar="FOLDER", default=Path("out/arabic"), help="goes on here")
    shared = os.environ.get("DUPQ_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", default=shared, type=Path, help="the folder of data (default: %(default)s)")
    return parser.parse_args()


def read(file: Path) -> tuple[list[str], Pairs]:
    """The different questions, whose ids are their places, and the pairs; one of a question with itself is left out."""
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    places: dict[str, int] = {}
    for row in rows:
        for column in ("question1", "question2"):
            places.setdefault(row[column].strip(), len(places))
    ids = np.array([[places[row[column].strip()] for column in ("question1", "question2")] for row in rows])
    labels = np.array([int(row["duplicate"]) for row in rows])
    differ = ids[:, 0] != ids[:, 1]
    return list(places), Pairs(ids[differ], labels[differ])


def write_tables(work: Path, texts: list[str], pairs: Pairs) -> None:
    lines = [f"{place}\t{text}\n" for place, text in enumerate(texts)]
    (work / "questions.tsv").write_text("id\tquestion\n" + "".join(lines), "utf-8")
    rows = zip(*pairs.ids.T.tolist(), pairs.labels.tolist(), strict=True)
    (work / "pairs.tsv").write_text("".join(f"{left}\t{right}\t{label}\n" for left, right, label in rows), "utf-8")


def measure(encoder: str, questions: str, texts: list[str], pairs: Pairs) -> dict[str, Any]:
    """The figures of an encoder, and of the bags of the words that it reads."""
    sites = question_shards(questions)[1]
    parts = {part: keys & ((1 << 48) - 1) for part, keys in read_split(encoder, sites).items()}
    saved = load(encoder)
    development, test = (pairs.of(rows) for rows in of_parts(pairs, parts))
    embeddings = embedded(saved, texts)
    normaliser = normaliser_of(saved.settings.text)
    read = normaliser.read(pa.array([" ".join(tokens(text)) for text in texts], pa.large_string())).to_pylist()
    words = [[form for form in normaliser.each_form(text.split(" ")) if form] if text else [] for text in read]
    found: dict[str, Any] = {"development_pairs": len(development.labels), "test_pairs": len(test.labels)}
    found["test_duplicates"] = int(test.labels.sum())
    for name, score in (
        ("encoder", lambda ids: pair_scores(saved.network.measure, *(embeddings.take(side) for side in ids.T))),
        ("bag_of_words", lambda ids: np.array([cosine(words[left], words[right]) for left, right in ids.tolist()])),
    ):
        threshold = best_threshold(score(development.ids), development.labels)
        scores = score(test.ids)
        found[f"{name}_accuracy"] = round(accuracy(scores, test.labels, threshold), 4)
        found[f"{name}_roc_auc"] = round(float(roc_auc_score(test.labels, scores)), 4)
    return found


def of_parts(pairs: Pairs, parts: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs are of the development part, and which of the test part."""
    has = {part: np.isin(pairs.ids, keys).any(axis=1) for part, keys in parts.items()}
    test = has["test"] & ~has["train"] & ~has["development"]
    return has["development"] & ~has["train"] & ~has["test"], test


def embedded(saved: SavedEncoder, texts: list[str]) -> Embeddings:
    maximum = saved.settings.encoder.maximum_tokens
    sequences, _ = saved.vocabulary.sequences(pa.array([" ".join(tokens(text)) for text in texts]), maximum)
    return Embeddings(np.arange(len(texts)), *encode(saved.network, sequences, 64))


def cosine(left: list[str], right: list[str]) -> float:
    """Of the counts of words; 0 without any."""
    counts = Counter(left), Counter(right)
    product = sum(count * counts[1][word] for word, count in counts[0].items())
    squares = [sum(count**2 for count in side.values()) for side in counts]
    return product / (squares[0] * squares[1]) ** 0.5 if all(squares) else 0.0


def table(figures: dict[str, Any]) -> str:
    columns = ("encoder_accuracy", "bag_of_words_accuracy", "encoder_roc_auc", "bag_of_words_roc_auc")
    rows = [f"{'preset':22}" + "".join(f"{column:>24}" for column in columns)]
    for preset, measured in figures.items():
        rows.append(f"{preset:22}" + "".join(f"{100 * measured[column]:24.1f}" for column in columns))
    return "\n".join(rows)


if __name__ == "__main__":
    main()
