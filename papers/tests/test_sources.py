"""Where the experiments' data sets come from, and what is too small to be one."""

from pathlib import Path

import pytest
from archives import write_site

from dupq.errors import DupqError
from dupq_papers.experiments.sources import folder_source, sites_of


def test_sites_too_small_to_split_are_left_out_and_told(tmp_path: Path) -> None:
    write_site(tmp_path, "large.stackexchange.com", 12, [(1, 2), (3, 4), (5, 6), (7, 8)])
    write_site(tmp_path, "small.stackexchange.com", 4, [(1, 2), (3, 4)])
    write_site(tmp_path, "gone.com", 4, [(1, 2), (3, 104), (5, 106), (7, 108)])  # links to questions not there
    write_site(tmp_path, "none.com", 4, [])
    found = sites_of(f"{tmp_path}/questions", f"{tmp_path}/links")
    assert [source.name for source in found.sources] == ["large"]
    assert found.left_out == [
        "gone.com: 1 known duplicates, too few to split",
        "none.com: 0 known duplicates, too few to split",
        "small: 2 known duplicates, too few to split",
    ]


@pytest.mark.parametrize(("file", "missing"), [("train-part1.xml", "test part"), ("dev.xml", "training part")])
def test_semeval_without_one_of_its_parts_is_refused(file: str, missing: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("<xml/>")
    with pytest.raises(DupqError, match=f"those of the {missing} .* are missing"):
        folder_source(str(tmp_path))
