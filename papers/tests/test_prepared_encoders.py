"""Encoders that nothing is learned of by gradients, from dump to clusters; word vectors from answers and from files."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from inline import without_ray
from oracles.slow_ids import slow_ids

from dupq.encoders.saved import load
from dupq.errors import DupqError
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train
from dupq_papers.networks.mappsent import MappSent
from dupq_papers.networks.sif import SIF

QUICK = ("word_vectors.dimensions=8", "word_vectors.epochs=1", "word_vectors.minimum_count=1")
TOPICS = ("bread ovens", "train tickets", "graph theory", "bicycle chains", "visa rules", "coffee beans")

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
@without_ray()
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two questions on each topic, linked, and an answer that alone says "sourdough"."""
    folder = tmp_path_factory.mktemp("small") / "small.example.com"
    folder.mkdir()
    rows, links = [], []
    for number, topic in enumerate(TOPICS):
        for copy, title in enumerate((f"How do I choose {topic}?", f"Choosing {topic} on 12/05/2014")):
            rows.append(f'<row Id="{2 * number + copy + 1}" PostTypeId="1" Title="{title}" Body="about {topic}" />')
        links.append(f'<row Id="{number}" PostId="{2 * number + 2}" RelatedPostId="{2 * number + 1}" LinkTypeId="3" />')
    rows.append('<row Id="99" PostTypeId="2" ParentId="1" Body="Use sourdoughs" />')
    for name, element, content in (("Posts", "posts", rows), ("PostLinks", "postlinks", links)):
        text = f'<?xml version="1.0" encoding="utf-8"?>\n<{element}>\n' + "\n".join(content) + f"\n</{element}>\n"
        (folder / f"{name}.xml").write_text(text)
    output = str(folder.parent / "archive")
    ingest(IngestJob((str(folder),), output, answers=True))
    return output


def trained(archive: str, output: Path, preset: str, *assignments: str) -> str:
    train(TrainingJob(f"{archive}/questions", f"{archive}/links", str(output), preset, (*QUICK, *assignments)))
    return str(output)


def test_mappsent_goes_from_dump_to_clusters_and_reads_the_answers(archive: str, tmp_path: Path) -> None:
    encoder = trained(archive, tmp_path / "encoder", "mappsent-pca", "text.dates=date", "text.tokens=words")
    saved = load(encoder)
    assert isinstance(saved.network, MappSent)
    assert {"sourdough", "date", "choose", "do"} <= set(saved.vocabulary.words)
    assert len(saved.metrics["learning_curve"]) == 1
    unused = [saved.vocabulary.words.index(word) + 2 for word in ("how", "do", "on")]
    text = "how do i choose bread ovens on 12 05 2014"
    assert not set(unused).intersection(slow_ids(saved.vocabulary, text, 99).tolist())
    run = dedup(DedupJob(f"{archive}/questions", encoder, str(tmp_path / "runs"), f"{archive}/links"))
    assert len(pq.read_table(run.path("clusters"))) == 2 * len(TOPICS)


def test_sif_over_vectors_that_a_user_brings(archive: str, tmp_path: Path) -> None:
    words = sorted({word for topic in TOPICS for word in topic.split(" ")})
    generator = np.random.default_rng(1)
    lines = [f"{word} {' '.join(f'{value:.4f}' for value in generator.normal(size=8))}" for word in words]
    (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n")
    vectors = f"word_vectors.file={tmp_path}/glove.txt"
    written = ("text.word_form=written", "text.parts_of_speech=all")
    saved = load(trained(archive, tmp_path / "encoder", "arora-sif-pca", vectors, *written))
    assert isinstance(saved.network, SIF)
    assert "sourdoughs" not in saved.vocabulary.words
    row = saved.network.words.weight[saved.vocabulary.words.index("bread") + 2]
    assert row.tolist() == pytest.approx([float(value) for value in lines[words.index("bread")].split(" ")[1:]])
    assert saved.network.components.norm(dim=1).tolist() == pytest.approx([1])


def test_a_file_of_vectors_that_is_not_there_is_said_before_any_work(archive: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=r"word_vectors\.file=/nowhere/glove\.txt: no such file"):
        trained(archive, tmp_path / "encoder", "mappsent", "word_vectors.file=/nowhere/glove.txt")
    assert not (tmp_path / "encoder").exists()
