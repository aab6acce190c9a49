"""What evaluation reads of a run, beside what the encode stage wrote."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dupq import config, storage
from dupq.encoders.build import build
from dupq.encoders.fitness import Fitness
from dupq.encoders.saved import SavedEncoder, save
from dupq.stages.encode import EncodeShard
from dupq.stages.evaluation.evaluate import read_archive
from dupq.tables import TEXTS
from dupq.text.keys import Sites
from dupq.text.vocabulary import Vocabulary

SITES = Sites(["a.example.com"])
WORDS = [f"w{number}" for number in range(50)]


def saved_encoder(folder: Path, title_times: int) -> str:
    """A bag of random word vectors that reads titles so many times."""
    settings = config.load()
    settings = dataclasses.replace(settings, text=dataclasses.replace(settings.text, title_times=title_times))
    settings = dataclasses.replace(settings, encoder=dataclasses.replace(settings.encoder, units=16))
    vocabulary = Vocabulary(WORDS, settings.text, 0)
    vectors = np.random.default_rng(1).normal(size=(len(vocabulary), 16)).astype(np.float32)
    network = build(settings.encoder, vectors, seed=1)
    network.prepare([vocabulary.ids(word, 512) for word in WORDS], [])
    network.tune(None)
    save(str(folder), SavedEncoder(network.eval(), vocabulary, settings, None, Fitness(0, 0.0, None), {}), "run")
    return str(folder)


def test_a_question_that_has_no_embedding_gets_the_one_that_the_encode_stage_would_give(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    titles = [" ".join(random.choice(WORDS, 5)) for _ in range(20)]
    bodies = [" ".join(random.choice(WORDS, 30)) for _ in range(20)]
    texts = [f"{title} {body}" for title, body in zip(titles, bodies, strict=True)]
    table = pa.table([pa.array(np.arange(20)), pa.array(titles), pa.array(texts)], schema=TEXTS)
    storage.write_table(str(tmp_path / "texts" / "part-00000.parquet"), table, TEXTS)
    encoder = saved_encoder(tmp_path / "encoder", title_times=3)
    shard = EncodeShard(encoder, SITES.names, None, 64, gpu=False)
    whole = tmp_path / "embeddings" / "part-00000.parquet"
    shard({"texts": np.array([str(tmp_path / "texts" / "part-00000.parquet")]), "output": np.array([str(whole)])})
    (tmp_path / "some").mkdir()
    pq.write_table(pq.read_table(whole).slice(0, 12), tmp_path / "some" / "part-00000.parquet")

    left, right = np.triu_indices(20, 1)
    scores = [
        read_archive(str(tmp_path / "texts"), str(tmp_path / folder), encoder, SITES)
        .rankers["encoder"]
        .score(left, right)
        for folder in ("embeddings", "some")
    ]
    assert np.array_equal(*scores)
