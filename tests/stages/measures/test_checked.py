"""How right pairs are that may join, by what people said of them."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import beta

from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import DIFFERENT, SAME
from dupq.stages.measures.of_run import checked_by
from dupq.tables import PAIRS
from dupq.text.keys import Sites

SITES = Sites(["a.example.com"])


def test_judged_pairs_by_the_encoder_from_the_threshold_on_are_counted() -> None:
    random = np.random.default_rng(5)
    ends = [*combinations(range(1, 25), 2)]
    p, sources = (
        random.random(len(ends)).astype(np.float32),
        random.choice(["encoder", "exact"], len(ends), p=[0.8, 0.2]),
    )
    sides = {"site_left": SITES.names[0], "site_right": SITES.names[0], "joined": True}
    rows = [
        {**sides, "question_id_left": a, "question_id_right": b, "source": source, "probability": x}
        for (a, b), source, x in zip(ends, sources.tolist(), p.tolist(), strict=True)
    ]
    table = pa.Table.from_pylist(rows, PAIRS)
    chosen = random.choice(len(ends), 90, replace=False)
    words = random.choice([SAME, DIFFERENT, -1], 90, p=[0.6, 0.3, 0.1])
    people = Judged(np.array(ends, np.int64)[chosen], words.astype(np.int8))
    counted = [word for row, word in zip(chosen, words, strict=True) if sources[row] == "encoder" and p[row] >= 0.5]
    same, different = counted.count(SAME), counted.count(DIFFERENT)
    found = checked_by(iter([table.slice(0, 100), table.slice(100)]), 0.5, SITES, people)
    assert (found["pairs"], found["right"]) == (same + different, same)
    assert found["least"] == pytest.approx(beta.ppf(0.05, same, different + 1))
