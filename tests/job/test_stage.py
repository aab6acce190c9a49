"""Stages: their answers are kept, and calls that do not fit a step are refused by the runner and by mypy."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import wrong_calls
from inline import without_ray
from run_tables import table

from dupq import kinds, storage
from dupq.job.records import record_of
from dupq.job.run import Run
from dupq.job.stage import stage, versions_of
from dupq.job.table import File, Shuffled, Table
from dupq.settings.config import Settings
from dupq.tables import KEY_PAIRS, KEYS, RARITIES


def opened(folder: Path, name: str = "") -> Run:
    return Run.open(str(folder), {}, {"name": name}, Settings(), {})


class Tables(NamedTuple):
    """Several tables, and what is known of them."""

    one: Table[kinds.Key]
    parts: tuple[Shuffled[kinds.Key], ...]
    share: float
    other: Table[kinds.Key] | None = None


def answers(run: Run) -> list[tuple[Any, Any]]:
    """An answer of each type that a stage may declare."""
    one = Table(run.path("work", "a"), KEYS, 2, ("key",), 7)
    spread = Shuffled((run.path("work", "b", "part-00000.arrow"),), KEY_PAIRS, 3, ("left",), 8)
    any_schema = Table(run.path("b"), None, 1)
    return [
        (None, None),
        (int, 7),
        (dict[str, float], {"share": 0.1}),
        (tuple[str, ...], ("a", "b")),
        (Table[kinds.Key], one),
        (Table[kinds.Key] | None, one),
        (Table[kinds.Key] | None, None),
        (File, File(run.path("work", "model.bin"))),
        (list[Table[Any]], [one, any_schema]),
        (tuple[Shuffled[kinds.KeyPair], int], (spread, 3)),
        (Tables, Tables(one, (spread, spread), 0.5)),
        (tuple[Tables, Tables | None], (Tables(one, (), 1.0, one), None)),
    ]


@pytest.mark.parametrize("number", range(len(answers(Run("some")))))
def test_a_stage_is_called_once_and_its_answer_is_read_back_later(number: int, tmp_path: Path) -> None:
    calls: list[Run] = []
    kind, answer = answers(opened(tmp_path))[number]

    def make(run: Run) -> kind:
        calls.append(run)
        run.report.rows_out = 5
        return answer

    made = stage("made", version=2)(make)
    found = [made(opened(tmp_path)) for _ in range(2)]
    assert found == [answer, answer]
    assert list(map(repr, found)) == [repr(answer)] * 2  # numbers of rows too
    assert (len(calls), versions_of(made)) == (1, {"made": 2})


@stage("kept", version=1, keeps=("work/kept",))
def kept(run: Run, device: str) -> str:
    """The name of the first run with this answer."""
    before = kept.earlier(run, {"device": device, "model": "m"})
    storage.write_json(run.path("work", "kept", "file.json"), device)
    storage.write_json(run.path("work", "more.json"), device)
    return before or run.run_id


def test_a_stage_that_is_no_part_of_the_run_s_identity_is_refused(tmp_path: Path) -> None:
    run = Run.open(str(tmp_path), {}, {}, Settings(), {"another": 1})
    with pytest.raises(TypeError, match="no part of the run's identity"), run.held():
        kept(run, "cpu")


def test_a_call_that_does_not_fit_a_stage_is_refused_before_it_begins(tmp_path: Path) -> None:
    run = opened(tmp_path)
    with pytest.raises(TypeError, match="device"):
        kept(run)
    assert not Path(run.uri).exists()


@pytest.mark.parametrize(
    ("device", "lost", "why_not"),
    [
        ("cpu", "work/more.json", ""),
        ("gpu", "work/more.json", "its results were made with another device"),
        ("cpu", "work/kept/file.json", "it has lost some of its results"),
        ("cpu", "stages/kept.json", "it has kept no results"),
    ],
)
def test_an_earlier_answer_is_taken_if_it_was_made_the_same_way_and_is_whole(
    device: str, lost: str, why_not: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier, run = opened(tmp_path, "earlier"), opened(tmp_path, "now")
    assert kept(earlier, "cpu") == earlier.run_id
    Path(earlier.path(lost)).unlink()
    run.previous = earlier.uri
    assert kept(run, device) == (run.run_id if why_not else earlier.run_id)
    line = f"kept: nothing is taken from {earlier.uri}: {why_not}"
    assert (line in capsys.readouterr().out) == bool(why_not)
    assert storage.read_json(record_of(run.uri, "kept"))["made_as"] == {"device": device, "model": "m"}


REFUSALS = {
    1: "chosen: keys has no column key; it has left, right",
    2: "chosen: missing a required argument: 'most'",
    3: "chosen: pairs has no column left; it has rarity",
    4: r"chosen: rarities is a Table; the step iterates over it \(Streamed\)",
}


def test_calls_that_do_not_fit_a_step_are_refused_before_any_task_runs(tmp_path: Path) -> None:
    run = Run(str(tmp_path), "some")
    rows = {"keys": KEYS, "pairs": KEY_PAIRS, "rarities": RARITIES}
    inputs = [
        table(f"{tmp_path}/{name}", schema, [dict.fromkeys(schema.names, 1)] * 3) for name, schema in rows.items()
    ]
    with without_ray():
        for number, refusal in REFUSALS.items():
            with pytest.raises(TypeError, match=refusal):
                wrong_calls.calls(run, number, *inputs)
        assert run.report.tasks == 0
        assert wrong_calls.calls(run, 0, *inputs).read().num_rows == 1
