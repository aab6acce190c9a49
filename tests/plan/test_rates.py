"""Files of rates, and how they are fitted to what was measured."""

import json
from pathlib import Path

import pytest

from benchmarks.whole_job.fit import by_stage, memory, piece_of, polynomial, stage_rates
from dupq.errors import DupqError
from dupq.plan.rates import SHIPPED, Stage, read_rates


def changed(folder: Path, change: dict) -> Path:
    place = folder / "rates.json"
    place.write_text(json.dumps({**json.loads(SHIPPED.read_text()), **change}))
    return place


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"questions_a_shard": 0}, "questions_a_shard: Input should be greater than or equal to 1"),
        ({"stages": []}, "stages"),
        ({"colour": "green"}, "colour"),
        ({"stages": 2 * json.loads(SHIPPED.read_text())["stages"]}, "appears twice"),
    ],
)
def test_what_is_wrong_with_a_file_of_rates_is_a_line(tmp_path: Path, change: dict, said: str) -> None:
    with pytest.raises(DupqError, match=said) as raised:
        read_rates(changed(tmp_path, change))
    assert "\n" not in str(raised.value)
    assert "rates.json" in str(raised.value)


def test_a_file_that_is_not_there_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=r"none\.json: No such file"):
        read_rates(tmp_path / "none.json")


def test_what_is_a_polynomial_is_found_again() -> None:
    sizes = [1_000, 2_000, 5_000, 9_000]
    found = polynomial(sizes, [3 + 2e-3 * n + 1e-7 * n * n for n in sizes], 2, "seconds")
    assert found == pytest.approx([3, 2e-3, 1e-7], rel=1e-3)


def test_no_coefficient_is_below_zero() -> None:
    assert polynomial([1_000, 2_000], [5.0, 4.0], 1, "seconds")[1] == 0


def test_of_one_size_time_is_proportional_and_memory_the_same() -> None:
    assert polynomial([1_000], [5.0], 2, "seconds") == [0, 5e-3]
    assert polynomial([1_000], [5.0], 2, "mb") == [5.0]


def test_memory_of_all_questions_grows_as_several_shards_show() -> None:
    assert memory([1e4, 5e4], [400.0, 700.0], None) == [700.0]
    assert memory([1e4, 1e5, 2e5, 3e5], [400.0, 500.0, 800.0, 900.0], None) == pytest.approx([600, 1e-3])
    assert memory([1e4, 5e4, 1e5], [400.0, 800.0, 800.0], 50_000) == pytest.approx([300, 1e-2])


def line(stage: str, *steps: tuple[str, int, float]) -> dict:
    return {
        **dict.fromkeys(("task_mb", "driver_mb", "written", "disk", "reads", "writes"), 50),
        "job": "dedup",
        "stage": stage,
        "driver_cpu_s": 0.5,
        "tasks_cpu_s": sum(cpu for *_, cpu in steps),
        "is_rest": False,
        "steps": [{"label": name, "tasks": tasks, "cpu_s": cpu, "task_mb": 300} for name, tasks, cpu in steps],
    }


def test_steps_that_many_tasks_do_are_those_that_many_tasks_did() -> None:
    cut = {8_000: line("texts", ("texts", 8, 4.0), ("gather", 1, 0.1))}
    assert piece_of(("texts", 0), "texts", cut, 50) == 50_000
    assert piece_of(("gather", 0), "texts", cut, 50) is None
    assert piece_of(("tiles", 0), "neighbours", {}, 50) is not None


def test_a_step_that_comes_twice_is_two_steps() -> None:
    whole = {size: line("fitness", ("fitness", 1, size / 1e3), ("fitness", 1, size / 1e4)) for size in (1_000, 9_000)}
    cut = {size: line("fitness", ("fitness", 1, 1.0), ("fitness", size // 1_000, 1.0)) for size in (4_000, 8_000)}
    found = Stage.model_validate(stage_rates(whole, cut, 50, 50_000))
    assert [step.piece for step in found.steps] == [None, 50_000]
    assert [step.cpu_seconds[1] for step in found.steps] == pytest.approx([1e-3, 1e-4])
    assert found.reads[0] == pytest.approx(50)


@pytest.mark.parametrize(("sizes", "constant"), [([1e4, 2e4, 5e4, 1e5], 0), ([1e4, 2e4, 5e4, 1e5, 2e5], 1.5)])
def test_what_starting_tiles_takes_is_told_from_sizes_enough(sizes: list[float], constant: float) -> None:
    whole = {int(n): line("neighbours", ("tiles", 9, 1.5 + 2e-4 * n + 3e-9 * n * n)) for n in sizes}
    found = Stage.model_validate(stage_rates(whole, {}, 50, 50_000)).steps[0].cpu_seconds
    assert found[0] == pytest.approx(constant, rel=1e-3)


def test_a_stage_that_an_earlier_attempt_had_begun_is_not_measured() -> None:
    rest = {**line("texts"), "is_rest": True}
    assert by_stage({1_000: [line("terms")], 2_000: [rest]}) == {("dedup", "terms"): {1_000: line("terms")}}
