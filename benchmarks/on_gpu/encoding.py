"""Questions a second that become embeddings, and how far these are from the CPU's."""

import functools
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from encode import operations_a_text, operations_a_word

from dupq import storage
from dupq.encoders.encoding import encode
from dupq.encoders.saved import Fitness, SavedEncoder, save
from dupq.job import cluster
from dupq.job.gpus import Gpus
from dupq.job.run import Run
from dupq.job.table import Table
from dupq.settings.sections import EncodeSettings
from dupq.stages.embeddings import ToEncode, embed
from dupq.tables import TEXTS
from dupq.text.keys import Sites
from dupq.text.questions import FIRST_WORD, Vocabulary
from dupq.text.token_arrays import TokenIds
from on_gpu.made_up import sample
from on_gpu.parts import Figures, Scale, gemm_peak, seconds

STAGE_PRESETS, QUESTIONS, SHARDS = ("bogdanova-max", "othman-lstm"), 200_000, 4  # as a run has
TIMES = 3  # that the stage meets each shard: with 16 shards it would begin actors of Ray Data
PRESETS = ("dupq", "bogdanova-max", "bow-cnn-distilled", "othman-lstm")
BATCHES = (0, 64, 512, 4_096)  # 0: as a run has it
_LEAST_COSINE = 0.999  # of an embedding and the CPU's: products of bfloat16 numbers


def figures(scale: Scale) -> Iterator[Figures]:
    """For each preset, at several sizes of a batch."""
    peak = gemm_peak(scale, torch.bfloat16)
    yield {"gemm_peak_tflops_bfloat16": peak / 1e12}
    for preset in PRESETS[:2] if scale.is_rehearsal else PRESETS:
        yield {preset: measured(scale, preset, peak)}


def stage(scale: Scale) -> Iterator[Figures]:
    """The stage `encode` from texts on the disk to embeddings there, once its processes have begun, beside `encode`."""
    cluster.connect("local")
    gpus = Gpus(0 if scale.is_rehearsal else 1)
    for preset in STAGE_PRESETS:
        made = sample(scale, preset, scale.size(QUESTIONS, 32), ("text.word_form=written", "text.stop_words=kept"))
        with tempfile.TemporaryDirectory() as folder:
            written_words = [f"w{number}" for number in range(scale.size(200_000, 300))]
            vocabulary = Vocabulary(written_words, made.settings.text)
            fitness = Fitness(questions=0, unknown_words=0.0, bodies_found=None)
            saved = SavedEncoder(made.network, vocabulary, made.settings, None, fitness, {})
            save(f"{folder}/encoder", saved, "benchmark")
            _write_texts(f"{folder}/texts", made.texts, pa.array(written_words))
            spent = {name: _stage_seconds(folder, name, gpus) for name in ("start", "all")}
        made.network.to(scale.device)
        texts = TokenIds.of(made.texts)
        bare = len(texts) / seconds(functools.partial(encode, made.network, texts), 1)
        yield {
            preset: {
                "questions": TIMES * len(texts),
                "seconds_to_begin": spent["start"],
                "questions_per_second": TIMES * len(texts) / spent["all"],
                "bare_questions_per_second": bare,
                "share_of_bare": TIMES * len(texts) / spent["all"] / bare,
            }
        }


def _write_texts(folder: str, questions: list[np.ndarray], words: pa.Array) -> None:
    for number, rows in enumerate(np.array_split(np.arange(len(questions)), min(SHARDS, len(questions)))):
        flat = TokenIds.of([questions[row] for row in rows])
        listed = pa.ListArray.from_arrays(
            pa.array(flat.offsets, pa.int32()), words.take(pa.array(flat.ids - FIRST_WORD))
        )
        columns = [pa.array(rows), pa.array([""] * len(rows)), pc.binary_join(listed, " ")]
        table = pa.table(columns, schema=TEXTS)
        for again in range(TIMES):
            storage.write_table(f"{folder}/part-{TIMES * number + again:05}.parquet", table, TEXTS)


def _stage_seconds(folder: str, name: str, gpus: Gpus) -> float:
    run, files = Run(f"{folder}/{name}", "encode"), storage.list_files(f"{folder}/texts", ".parquet")
    texts = Table(f"{folder}/texts", TEXTS, len(files))
    begun = time.perf_counter()
    embed.function(run, ToEncode(texts), f"{folder}/encoder", Sites(["a.example.com"]), EncodeSettings(), gpus)
    return time.perf_counter() - begun


def measured(scale: Scale, preset: str, peak: float) -> Figures:
    """The figures of one preset."""
    made = sample(scale, preset, scale.size(20_000, 24))
    some, texts = TokenIds.of(made.texts[: scale.size(200, 8)]), TokenIds.of(made.texts)
    expected = encode(made.network, some, 64).vectors.astype(np.float64)
    made.network.to(scale.device)
    found = encode(made.network, some, 64).vectors.astype(np.float64)
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(found, axis=1)
    cosine = float(((expected * found).sum(axis=1) / lengths).min())
    speed = {
        rows: len(texts) / seconds(functools.partial(encode, made.network, texts, rows), scale.size(3, 1))
        for rows in (BATCHES[:1] if scale.is_rehearsal else BATCHES)
    }
    fastest = max(speed, key=lambda rows: speed[rows])
    words = len(texts.ids) / len(texts)
    operations = operations_a_word(made.settings) * words + operations_a_text(made.settings)
    return {
        "questions_per_second": speed[fastest],
        "words_per_second": speed[fastest] * words,
        "share_of_gemm_peak": speed[fastest] * operations / peak,
        "fastest_batch": fastest,
        "by_batch": speed,
        "least_cosine_with_the_cpu": cosine,
        "is_like_the_cpu": cosine >= _LEAST_COSINE,
    }
