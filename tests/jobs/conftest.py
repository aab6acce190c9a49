from pathlib import Path

import pytest
from golden.observe import put_together
from inline import without_ray
from riddles.grammar import write_sample

from dupq.pipelines.ingest import IngestJob, ingest


@pytest.fixture(autouse=True)
def _quick(quick: None) -> None:
    """Used by all tests of this folder."""


@pytest.fixture(scope="session")
@without_ray()
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 300 questions, their links, an encoder that is put together, and what was planted (truth.tsv)."""
    folder = tmp_path_factory.mktemp("untrained")
    sample = write_sample(folder / "dump", questions=300)
    ingest(IngestJob((str(sample.archive),), str(folder)))
    put_together(f"{folder}/questions", str(folder / "encoder"))
    sample.truth.rename(folder / "truth.tsv")
    return folder
