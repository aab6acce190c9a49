"""The sample of pairs to be judged, made of a run's pairs table, and what is read of a filled-in sheet."""

import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import fabricated_run
import numpy as np
import pyarrow as pa
import pytest
from inline import without_ray
from run_tables import key_of, question_row, table, write_rows

from dupq import storage
from dupq.archive import Shard, question_shards
from dupq.evaluation import sampling, verdicts
from dupq.evaluation.sampling import Judged, read_verdicts
from dupq.job.run import Run
from dupq.job.table import Shards, Table
from dupq.job.tasks import Report
from dupq.runs.queries import estimated
from dupq.stages.measures.review import draw_review
from dupq.tables import PAIRS, QUESTIONS, REVIEW
from dupq.text.keys import ID_BITS, Sites, pairs_in

A, B, ELSEWHERE = "a.example.com", "b.example.com", "c.example.com"
QUESTIONS_OF_SITE = 25
SIZE = 40
RUN = "0123456789abcdef"
SITES = Sites([A, B])

Row = dict[str, Any]


def title_of(site: str, number: int) -> str:
    return f"Title {number}\tof\n {site}"


def pairs() -> list[Row]:
    """Every pair of the encoder with a probability of its own, and near duplicates, which nobody judges."""
    random = np.random.default_rng(4)
    questions = [(site, number) for site in (A, B) for number in range(1, QUESTIONS_OF_SITE + 1)]
    rows = []
    for place, (left, right) in enumerate(combinations(questions, 2)):
        p = float(np.float32(random.beta(0.3, 0.5)))
        source = "near_duplicate" if place % 50 == 0 else "encoder"
        row = dict(zip(PAIRS.names[:4], (*left, *right), strict=True))
        rows.append({**row, "source": source, "probability": p, "joined": p > 0.7})
    return rows


class Made(NamedTuple):
    """A sample and its sheet, in the folder of a run."""

    report: Report
    run: Path
    parts: int

    @property
    def output(self) -> Path:
        return self.run / "review.parquet"

    @property
    def sheet_file(self) -> Path:
        return self.run / "review.tsv"

    @property
    def rows(self) -> pa.Table:
        return storage.read_table(str(self.output), REVIEW)

    @property
    def sheet(self) -> str:
        return self.sheet_file.read_text()

    @property
    def lines(self) -> list[Row]:
        header, *lines = (line.split("\t") for line in self.sheet.splitlines())
        return [dict(zip(header, line, strict=True)) for line in lines]


def make(run: Path, files: list[list[Row]], size: int = SIZE) -> Made:
    """The sample of pairs that lie in these files."""
    table(f"{run}/pairs", PAIRS, *files)
    counts = dict.fromkeys(SITES.names, QUESTIONS_OF_SITE)
    storage.write_json(f"{run}/metrics.json", {**fabricated_run.metrics(), "sites": counts})
    return Made(drawn(run, len(files), size), run, len(files))


def drawn(run: Path, parts: int, size: int) -> Report:
    steps = Run(str(run), "review")
    titled = Shards(tuple(shards(run.parent)), tuple(SITES.names), QUESTIONS)
    draw_review.function(steps, Table(f"{run}/pairs", PAIRS, parts), titled, SITES, size, RUN)
    return steps.report


def shards(folder: Path) -> list[Shard]:
    for site in (A, B):
        rows = [question_row(n, title=title_of(site, n)) for n in range(1, QUESTIONS_OF_SITE + 1)]
        for half in (0, 1):
            write_rows(f"{folder}/questions/site={site}/part-{half}.parquet", rows[half::2], QUESTIONS)
    return question_shards(f"{folder}/questions")[0]


@pytest.fixture(scope="module")
@without_ray()
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("made") / RUN, [pairs()])


def filled(made: Made, verdict: Callable[[Row], str]) -> str:
    """The sheet as people give it back."""
    header = made.lines[0].keys()
    lines = [{**line, "verdict": verdict(line)} for line in made.lines]
    return "\n".join("\t".join(some) for some in [header, *(line.values() for line in lines)]) + "\n"


def written(folder: Path, text: str | bytes) -> str:
    uri = folder / "judged.tsv"
    uri.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(uri)


def test_a_sample_is_of_the_encoders_pairs_each_with_the_weight_of_its_stratum(made: Made) -> None:
    rows, encoders = made.rows, {}
    for row in pairs():
        if row["source"] == "encoder":
            ends = (key_of(SITES, (row[f"site_{side}"], row[f"question_id_{side}"])) for side in ("left", "right"))
            encoders[tuple(ends)] = row
    assert made.report.rows_out == len(rows) == SIZE
    assert made.report.rows_in == len(encoders)
    drawn = [encoders[pair] for pair in map(tuple, pairs_in(rows).tolist())]
    assert [row["joined"] for row in drawn] == rows["joined"].to_pylist()
    assert set(rows["joined"].to_pylist()) == {True, False}
    strata = np.unique(rows["stratum"], return_index=True)[1]
    assert rows["pairs"].to_numpy()[strata].sum() == len(encoders)
    assert rows["drawn"].to_numpy()[strata].sum() == SIZE


def test_the_sample_does_not_depend_on_how_pairs_are_spread_over_files(made: Made, tmp_path: Path) -> None:
    rows = pairs()
    other = make(tmp_path / "other", [[], rows[700:], [], rows[:700:2], rows[1:700:2]])
    assert other.output.read_bytes() == made.output.read_bytes()
    assert other.sheet == made.sheet


def test_a_sheet_that_people_filled_in_outlives_what_is_made_again(tmp_path: Path) -> None:
    """Also saved by a spreadsheet in another encoding."""
    made = make(tmp_path / RUN, [pairs()])
    text, first = filled(made, by_parity), made.output.read_bytes()
    for sheet in (text.encode(), text.encode("utf-16")):
        made.sheet_file.write_bytes(sheet)
        shutil.rmtree(made.run / "work")
        made.output.unlink()
        drawn(made.run, made.parts, SIZE)
        assert (made.sheet_file.read_bytes(), made.output.read_bytes()) == (sheet, first)


def test_a_sheet_has_the_titles_of_each_pair_and_the_run(made: Made) -> None:
    rows, lines = made.rows, made.lines
    assert len(lines) == SIZE
    for line in lines:
        for side in ("left", "right"):
            title = title_of(line[f"site_{side}"], int(line[f"question_id_{side}"]))
            assert line[f"title_{side}"] == " ".join(title.split())
        assert line["run_id"] == RUN
        assert line["verdict"] == ""
    names = [[(line[f"site_{side}"], int(line[f"question_id_{side}"])) for side in ("left", "right")] for line in lines]
    keys = [[key_of(SITES, question) for question in pair] for pair in names]
    assert keys == pairs_in(rows)[sampling.asking_order(rows)].tolist()


def test_without_pairs_of_the_encoder_the_sheet_has_no_lines(tmp_path: Path) -> None:
    made = make(tmp_path / RUN, [[row for row in pairs() if row["source"] != "encoder"][:5], []])
    assert made.report.rows_out == 0
    assert made.sheet.splitlines() == ["\t".join([verdicts.TOKEN, *verdicts.COLUMNS])]
    assert not made.output.exists()
    few = [row for row in pairs() if row["source"] == "encoder"][:60]
    assert make(tmp_path / "few", [few], 5_000).report.rows_out == 60


def by_parity(line: Row) -> str:
    """What a person might say, whatever the pair."""
    return "unsure" if line["question_id_left"] == "1" else ("same", "different")[int(line["question_id_right"]) % 2]


def test_what_a_sheet_says_is_estimated_on_the_sample_of_the_run_that_it_names(made: Made, tmp_path: Path) -> None:
    sheet = filled(made, by_parity)
    empty = estimated(written(tmp_path, made.sheet), str(made.run.parent))
    assert empty == dict.fromkeys(("precision", "recall", "duplicates")) | {
        "run_id": RUN,
        **dict.fromkeys(("judged", "unsure", "on_other_pairs"), 0),
    }
    drawn = {tuple(pair) for pair in pairs_in(made.rows).tolist()}
    other = next(n for n in range(2, QUESTIONS_OF_SITE) if (1, n) not in drawn)
    more = "\t".join(["", A, "1", A, str(other), "same", *[""] * (len(made.lines[0]) - 6)])
    found = estimated(written(tmp_path, sheet + more), str(made.run.parent))
    given = verdicts.parse_verdicts(sheet, "")
    ends = [[key_of(SITES, row[at : at + 2]) for at in (0, 2)] for row in given]
    codes = np.array([verdicts.VERDICTS[row.verdict] for row in given], np.int8)
    on_rows, elsewhere = sampling.verdicts_of(made.rows, Judged(np.array(ends), codes))
    expected = sampling.estimate(made.rows, on_rows)
    assert elsewhere == 0
    assert found == {
        "run_id": RUN,
        "precision": expected.precision._asdict(),
        "recall": expected.recall._asdict(),
        "duplicates": expected.duplicates._asdict(),
        "judged": sum(row.verdict != "unsure" for row in given),
        "unsure": sum(row.verdict == "unsure" for row in given),
        "on_other_pairs": 1,  # that the run did not draw
    }
    assert found["unsure"] > 0


@pytest.mark.parametrize(
    "change",
    [
        lambda sheet: sheet.replace(RUN, "ffff"),  # a run that is not there
        lambda sheet: sheet.replace(RUN, f"../{RUN}"),
        lambda sheet: sheet.replace("run_id", "note"),
        lambda sheet: "",
    ],
)
def test_a_sheet_of_a_run_that_is_not_there_is_no_estimate(
    change: Callable[[str], str], made: Made, tmp_path: Path
) -> None:
    assert estimated(written(tmp_path, change(filled(made, by_parity))), str(made.run.parent)) is None


def verdict_file(*rows: tuple[str, int, str, int, str]) -> str:
    return verdicts.format_verdicts([verdicts.Verdict(*row) for row in rows])


def test_verdicts_are_read_as_keys_and_those_of_other_sites_left_out(tmp_path: Path) -> None:
    given = verdict_file(
        (A, 3, A, 1, "same"), (B, 2, A, 9, "different"), (A, 1, ELSEWHERE, 2, "same"), (B, 1, B, 2, "unsure"),
        (ELSEWHERE, 1, ELSEWHERE, 2, "different"), (B, 4, B, 5, ""),
    )  # fmt: skip
    found, of_b = read_verdicts(written(tmp_path, given), SITES), 1 << ID_BITS
    assert found.pairs.tolist() == [[1, 3], [9, of_b | 2], [of_b | 1, of_b | 2]]
    assert found.verdicts.tolist() == [verdicts.SAME, verdicts.DIFFERENT, verdicts.UNSURE]
