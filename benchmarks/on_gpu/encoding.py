"""Questions a second that become embeddings, and how far these are from the CPU's."""

import functools
from collections.abc import Iterator

import numpy as np
import torch
from encode import operations_a_text, operations_a_word

from dupq.encoders.encode import encode
from dupq.text.token_ids import TokenIds
from on_gpu.made_up import sample
from on_gpu.parts import Figures, Scale, gemm_peak, seconds

PRESETS = ("dupq", "bogdanova-max", "bow-cnn-distilled", "othman-lstm")
BATCHES = (0, 64, 512, 4_096)  # 0: as a run has it
_LEAST_COSINE = 0.999  # of an embedding and the CPU's: products of bfloat16 numbers


def figures(scale: Scale) -> Iterator[Figures]:
    """For each preset, at several sizes of a batch."""
    peak = gemm_peak(scale, torch.bfloat16)
    yield {"gemm_peak_tflops_bfloat16": peak / 1e12}
    for preset in PRESETS[:2] if scale.is_rehearsal else PRESETS:
        yield {preset: measured(scale, preset, peak)}


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
