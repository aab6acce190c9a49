"""Make the encoder that ships with dupq (dupq/encoders/base), and measure it on sites that it was not made from.

    python benchmarks/base.py [--work FOLDER] [--leave-out SITE …] [--write] [--json FILE]

Its teacher is all-MiniLM-L6-v2 (benchmarks/minilm.py says how to install it), asked once for each question and word;
its embeddings stay in the work folder. A stem starts as the mean of its words' embeddings, less the mean of all, by
their first principal components; besides the stems of the dumps there are those of all English words that the teacher
has a word piece for. Then the network learns the teacher's neighbours within batches of one site: no links, no answers.

With --leave-out a site is not read for it, but measured: all its known duplicates against the whole site, MAP and
accuracy among the first 100, for weights of the lexical score, beside BM25. With --write the encoder of all sites
replaces the one in the package. Reads DUPQ_SHARED_DATA (default: ../shared/data).
"""

import argparse
import hashlib
import io
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from minilm import INSTALL, MiniLM, model_folder

from dupq.encoders.protocol import Encoder
from dupq.encoders.saved import Reader
from dupq.evaluation.measures import Ranker, retrieval_measures
from dupq.evaluation.rankers import BM25, EncoderRanker
from dupq.job import cluster
from dupq.links import split_links
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.keys import ID_BITS
from dupq.text.languages import normaliser_of
from dupq.text.questions import FIRST_WORD, Vocabulary, token_ids
from dupq.training import start as starts
from dupq.training.loop import train_epoch
from dupq.training.optimisation import linear_decay, optimizer_for, phase_settings, seed_dropout
from dupq.training.pairs import distillation_targets, targets_in_order
from dupq.training.start import BASE, Start, copy_weights, known_vectors, new_network, unpack
from dupq_papers.data.pair_sets import PairSet, archive
from dupq_papers.word_vectors import Spelling, mean_vectors

ROOT = Path(__file__).parents[1]
DIMENSIONS, LEAST_COUNT, GENERIC = 192, 3, 0.1  # GENERIC: occurrences more of each word that the teacher knows
BATCH_SIZE = 512
HIGHEST = 127  # of a signed byte
LEXICAL = (0.0, 0.3, 0.5, 0.8, 1.2, 2.0)
SETTINGS = (
    "word_vectors.algorithm=random",
    "title_body.epochs=0",
    "teacher.epochs=10",
    "teacher.learning_rate=0.002",
)


class Site(NamedTuple):
    """A site's questions, and the teacher's embeddings of them (float32, (n, 384))."""

    name: str
    known: PairSet
    taught: np.ndarray

    def texts(self, number: int) -> pa.Table:
        """Rows of TEXTS; `number` is that of the site among all."""
        questions = self.known.collection
        keys = pa.array((questions.keys & ((1 << ID_BITS) - 1)) | (number << ID_BITS))
        return pa.table({"key": keys, "title": questions.titles, "text": questions.texts})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    data = os.environ.get("DUPQ_SHARED_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--work", type=Path, default=ROOT / "out" / "base")
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="SITE")
    parser.add_argument("--write", action="store_true", help="replace the encoder in the package")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    settings = config.load("dupq", SETTINGS)
    dumps = sorted([*(options.data / "dumps").glob("*.7z"), *(options.data / "unlinked").glob("*.7z")])
    cluster.connect("local")
    teacher = Teacher(options.work)
    sites = [read(dump, options.work, teacher, settings) for dump in dumps]
    figures: dict[str, Any] = {}
    for site in sites:
        if site.name in options.leave_out:
            start = unpack(pack(learned([other for other in sites if other is not site], teacher, settings)))
            figures[site.name] = measured(site, start, settings)
            print(site.name, json.dumps(figures[site.name]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    if options.write:
        content = pack(learned(sites, teacher, settings))
        BASE.write_bytes(content)
        print(f"{BASE}: {len(content) / 1e6:.1f} MB")


class Teacher:
    """MiniLM, loaded when it is asked for something that is not kept yet."""

    def __init__(self, work: Path) -> None:
        self.work = work
        folder = model_folder()
        if folder is None:
            raise SystemExit(f"the teacher is not installed: {INSTALL}")
        self._folder = folder
        self._model: MiniLM | None = None
        pieces = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        self.words = [piece for piece in pieces if re.fullmatch(r"[a-z]{2,}", piece)]

    def encode(self, texts: list[str], name: str) -> np.ndarray:
        """Embeddings (float32, (n, 384)), kept by their texts."""
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
        place = self.work / f"{name}-{digest}.npy"
        if not place.exists():
            self._model = self._model or MiniLM(self._folder, torch.bfloat16)
            place.parent.mkdir(parents=True, exist_ok=True)
            np.save(place, self._model.encode(texts).astype(np.float16))
        return np.load(place).astype(np.float32)


def read(dump: Path, work: Path, teacher: Teacher, settings: Settings) -> Site:
    name = dump.name.removesuffix(".7z")
    folder = str((work / name).absolute())
    ingest(IngestJob((str(dump),), folder, name))
    known = archive(f"{folder}/questions", f"{folder}/links", settings.text)
    return Site(name, known, teacher.encode(known.collection.texts.to_pylist(), name))


def learned(sites: list[Site], teacher: Teacher, settings: Settings) -> Start:
    """The encoder learned from the teacher on some sites."""
    tables = [site.texts(number) for number, site in enumerate(sites)]
    texts = pa.concat_tables(tables).combine_chunks()
    words, vectors = word_vectors(texts["text"].to_pylist(), teacher, settings)
    vocabulary = Vocabulary(words, settings.text)
    ids = token_ids(texts, vocabulary, settings)[0]
    network = new_network(vocabulary, vectors, ids, [], settings)
    taught = distillation_targets(texts["key"].to_numpy(), np.concatenate([site.taught for site in sites]))
    train(network, dict(zip(texts["key"].to_pylist(), ids, strict=True)), taught, settings)
    tensors = {
        name: value.numpy() for name, value in network.state_dict().items() if name not in network.archive_weights
    }
    return Start(settings, words, tensors)


def word_vectors(texts: list[str], teacher: Teacher, settings: Settings) -> tuple[list[str], np.ndarray]:
    """Stems, and a table of their vectors with a row an id."""
    counts = Counter(word for text in texts for word in set(text.split()))
    written = sorted({word for word, count in counts.items() if count >= LEAST_COUNT} | set(teacher.words))
    forms = normaliser_of(settings.text).each_form(written)
    words = sorted({form for form in forms if form})
    rows = {word: row for row, word in enumerate(words)}
    found = [
        (Spelling(rows[form], word, 10 * counts[word] + 1), place)
        for place, (word, form) in enumerate(zip(written, forms, strict=True))
        if form
    ]
    vectors = teacher.encode(written, "words")[[place for _, place in found]]
    table = mean_vectors(
        [spelling for spelling, _ in found], vectors / np.linalg.norm(vectors, axis=1)[:, None], len(words)
    )
    table -= table.mean(axis=0)
    components = np.linalg.svd(table.T @ table)[0][:, :DIMENSIONS]
    return words, np.concatenate([np.zeros((FIRST_WORD, DIMENSIONS)), table @ components]).astype(np.float32)


def train(network: Encoder, sequences: dict[int, np.ndarray], taught: Any, settings: Settings) -> None:
    phase = settings.teacher
    training = phase_settings(settings.training, BATCH_SIZE, phase.learning_rate)
    optimizer = optimizer_for(network, training)
    for epoch in range(1, phase.epochs + 1):
        seed_dropout(training.seed, epoch)
        examples = targets_in_order(taught, training.seed, epoch, BATCH_SIZE)
        losses = train_epoch(network, optimizer, sequences, examples, training, rates=linear_decay(epoch, phase.epochs))
        print(f"  epoch {epoch}: loss {losses.mean:.4f}", flush=True)
    network.eval()


def pack(start: Start) -> bytes:
    """Return an encoder in few bytes: a row of a matrix becomes integers of -127 to 127 and their scale."""
    arrays: dict[str, np.ndarray] = {
        starts.SETTINGS: np.frombuffer(json.dumps(config.to_dict(start.settings), sort_keys=True).encode(), np.uint8),
        starts.WORDS: np.frombuffer("\n".join(start.words).encode(), np.uint8),
    }
    for name, tensor in sorted(start.tensors.items()):
        if tensor.ndim < 2 or tensor.shape[1] == 1:
            arrays[name] = tensor.astype(np.float16)
            continue
        scales = np.maximum(np.abs(tensor).max(axis=1, keepdims=True) / HIGHEST, 1e-12).astype(np.float32)
        arrays[name] = np.rint(tensor / scales).astype(np.int8)
        arrays[f"{name}{starts.SCALES}"] = scales
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def measured(site: Site, start: Start, settings: Settings) -> dict[str, Any]:
    """MAP and accuracy (%) on all known duplicates of a site, of the encoder and of BM25."""
    questions, links = site.known.collection, site.known.labels.duplicates
    texts, normaliser = site.texts(0), normaliser_of(settings.text)
    counts = Counter(word for text in questions.texts.to_pylist() for word in normaliser.all_words(text))
    words = [*start.words, *sorted(set(counts).difference(start.words))]
    vocabulary = Vocabulary(words, settings.text)
    vectors = np.concatenate([np.zeros((FIRST_WORD, DIMENSIONS), np.float32), known_vectors(start, words)[0]])
    network = new_network(vocabulary, vectors, token_ids(texts, vocabulary, settings)[0], [], settings)
    copy_weights(start, network, vocabulary)
    embedded = Embeddings(questions.keys, *Reader(network.eval(), vocabulary, settings).encode(texts))
    split = split_links(links, settings.training)
    queries = split.questions_of("train", "development", "test")
    sets = split.set_of(queries)
    relevant = [set(queries[sets == own].tolist()) - {query} for query, own in zip(queries.tolist(), sets, strict=True)]
    stored = pa.table({"key": questions.keys, "text": questions.texts})
    systems: dict[str, Ranker] = {"bm25": BM25([stored], questions.language)}
    for weight in LEXICAL:
        systems[f"lexical {weight}"] = EncoderRanker([embedded], Measure("cosine", 1.0, weight))
    return {"questions": len(questions.keys), "queries": len(queries)} | {
        name: {measure: round(100 * value, 1) for measure, value in found.items()}
        for name, system in systems.items()
        for found in [retrieval_measures(system.rank(queries, 100), relevant, 100)]
    }


if __name__ == "__main__":
    main()
