"""What a run copies of its inputs is read like the inputs themselves."""

from pathlib import Path

import pyarrow as pa
import pytest

from dupq import storage
from dupq.archive import input_files
from dupq.links import known_duplicates
from dupq.stages.inputs import copy_input
from dupq.tables import LINKS
from dupq.text.keys import Sites

SITES = Sites(["a", "b"])


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A table of two sites with a link each."""
    for number, site in enumerate(SITES.names):
        row = dict.fromkeys(LINKS.names) | {"question_id": 7, "related_id": number, "link_type": "duplicate"}
        storage.write_table(f"{tmp_path}/links/site={site}/0.parquet", pa.Table.from_pylist([row], LINKS), LINKS)
    return tmp_path / "links"


@pytest.mark.parametrize("given", ["", "site=b"])
def test_copied_links_are_those_that_were_given_also_of_one_site(given: str, links: Path, tmp_path: Path) -> None:
    for file in input_files(str(links / given), "links"):
        copy_input(file, f"{tmp_path}/run/{file.path}")
    wanted = known_duplicates(str(links / given), SITES)
    assert len(wanted) == (1 if given else 2)
    assert known_duplicates(f"{tmp_path}/run/links", SITES).tolist() == wanted.tolist()


def test_paths_depend_neither_on_where_a_table_is_nor_on_where_a_task_runs(
    links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(links.parent)
    (links.parent / "prior.json").write_text("{}")
    assert [Path(file.uri).parent for file in input_files("prior.json", "prior")] == [links.parent]
    moved = links.parent / "site=c" / "links"
    moved.parent.mkdir()
    links.rename(moved)
    paths = [file.path for file in input_files(str(moved), "links")]
    assert paths == ["links/site=a/0.parquet", "links/site=b/0.parquet"]
