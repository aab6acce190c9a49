"""From what meters wrote to the rates of a plan (dupq/plan/rates.py)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from dupq.settings.training import TitleBodySettings

Line = dict[str, Any]
_QUADRATIC = "tiles"  # the only step whose work grows with the square of the questions
_ENOUGH_FOR_A_CONSTANT = 5  # sizes: then what starting the tiles' workers takes is told from what grows
_TILE_PIECE = 8_192  # questions of the smallest block: any machine gets tiles enough
_TILE_MB = 2_000.0  # what the cut of blocks keeps a tile below (stages/neighbours/plan.py)
_OF_WORDS = ("prepare", "fit", "save")  # write vectors of words, of which few new ones come with more questions
_SEVERAL = 200_000  # questions: four shards, so each of two workers has read more than one
_INGEST_PIECE = 10_000  # questions of a unit of a dump, some 16 MB
_LEAST = {"seconds": 0.05, "mb": 1.0, "bytes": 1e4, "requests": 1.0}  # what differences below are worth nothing


def polynomial(sizes: Sequence[float], values: Sequence[float], degree: int, unit: str, lowest: int = 0) -> list[float]:
    """Coefficients of at least 0, by least squares of the relative errors; of one size what is proportional to it.

    Those below the power `lowest` are 0.
    """
    if len(set(sizes)) == 1:
        value = float(np.mean(values))
        return [value] if unit == "mb" else [0.0, float(f"{value / sizes[0]:.5g}")]
    found, wanted = np.asarray(sizes, float), np.asarray(values, float)
    weights = 1 / np.maximum(wanted, _LEAST[unit])
    scale = found.max()
    powers = range(lowest, min(degree, len(set(sizes)) - 1) + 1)
    columns = np.stack([(found / scale) ** power for power in powers], axis=1)
    solved, _ = nnls(columns * weights[:, None], wanted * weights)
    fitted = [float(f"{value / scale**power:.5g}") for power, value in zip(powers, solved, strict=True)]
    return [0.0] * lowest + fitted


def memory(sizes: Sequence[float], values: Sequence[float], piece: float | None) -> list[float]:
    """Of a task of a `piece` of the questions; None: of one task, or the driver, that works on all.

    Of the latter the growth is only taken from archives of several shards: below, what a process has kept of a shard
    that it read before looks like growth.
    """
    chosen = [(n, mb) for n, mb in zip(sizes, values, strict=True) if piece is not None or n >= _SEVERAL]
    if piece is None and len(chosen) < 2:
        return [float(max(values))]
    return polynomial([min(n, piece or n) for n, _ in chosen], [mb for _, mb in chosen], 1, "mb")


def steps_of(line: Line) -> dict[tuple[str, int], Line]:
    """The steps of a stage, by label and which of that label it is; what no step took is one of its own.

    Tiles are one step: of a small archive a block with itself is half of the work, of a large one nothing.
    """
    seen: Counter[str] = Counter()
    found: dict[tuple[str, int], Line] = {}
    for step in line["steps"]:
        if step["label"] == _QUADRATIC and seen[_QUADRATIC]:
            first = found[_QUADRATIC, 0]
            found[_QUADRATIC, 0] = first | {name: first[name] + step[name] for name in ("tasks", "cpu_s")}
            continue
        found[step["label"], seen[step["label"]]] = step
        seen[step["label"]] += 1
    rest = line["tasks_cpu_s"] - sum(step["cpu_s"] for step in line["steps"])
    if not line["steps"] or rest > max(0.5, 0.2 * line["tasks_cpu_s"]):
        found["other", 0] = {"label": "other", "tasks": 1, "cpu_s": max(rest, 0.0), "task_mb": line["task_mb"]}
    return found


def piece_of(key: tuple[str, int], stage: str, cut: Mapping[int, Line], times: int) -> float | None:
    """Questions of a task of a step, as archives that were cut `times` finer show; None: one task does all."""
    if stage == "ingest":
        return _INGEST_PIECE
    if key[0] == _QUADRATIC:
        return _TILE_PIECE
    questions = max(cut, default=0)
    step = steps_of(cut[questions]).get(key) if cut else None
    return None if step is None or step["tasks"] <= 1 else float(round(questions * times / step["tasks"]))


def stage_rates(whole: Mapping[int, Line], cut: Mapping[int, Line], times: int, shard: int) -> Line:
    """The rates of a stage: `whole` and `cut` are its lines by the number of questions of the archive."""
    sizes = sorted(whole)
    lines = [whole[size] for size in sizes]
    job, stage = lines[0]["job"], lines[0]["stage"]

    def fitted(name: str, degree: int, unit: str) -> list[float]:
        if stage == "inputs" and len(sizes) == 1:  # most of it is the import of libraries
            return [float(lines[0][name])]
        return polynomial(sizes, [line[name] for line in lines], degree, unit)

    keys = dict.fromkeys(key for line in lines for key in steps_of(line))
    found = {
        "job": job,
        "name": stage,
        "driver_cpu_seconds": fitted("driver_cpu_s", 1, "seconds"),
        "driver_mb": memory(sizes, [line["driver_mb"] for line in lines], None),
        "steps": [_step(key, whole, piece_of(key, stage, cut, times)) for key in keys],
        "written_bytes": fitted("written", 1, "bytes"),
        "disk_bytes": fitted("disk", 1, "bytes"),
    }
    if (job, stage) == ("train", "fit"):
        found["grows_until"] = TitleBodySettings().questions
    if job == "train" and stage in _OF_WORDS:
        found["bytes_grow_until"] = TitleBodySettings().questions
    if cut:
        shards = [size * times / shard for size in sorted(cut)]
        for name in ("reads", "writes"):
            found[name] = polynomial(shards, [cut[size][name] for size in sorted(cut)], 2, "requests")
    return found


def _step(key: tuple[str, int], whole: Mapping[int, Line], piece: float | None) -> Line:
    taken = {size: steps_of(line)[key] for size, line in sorted(whole.items()) if key in steps_of(line)}
    sizes = list(taken)
    is_tile = key[0] == _QUADRATIC
    peaks = [step.get("task_mb", 0) for step in taken.values()]
    found: Line = {"label": key[0]}
    if piece is not None:
        found["piece"] = piece
    seconds = [step["cpu_s"] for step in taken.values()]
    # a constant, of few sizes, would take the place of what grows with the questions: scoring candidates
    lowest = int(is_tile and len(sizes) < _ENOUGH_FOR_A_CONSTANT)
    found["cpu_seconds"] = polynomial(sizes, seconds, 1 + is_tile, "seconds", lowest)
    found["task_mb"] = [_TILE_MB] if is_tile else memory(sizes, peaks, piece)
    return found


def by_stage(measured: Mapping[int, Iterable[Line]]) -> dict[tuple[str, str], dict[int, Line]]:
    """Lines by job and stage, then by the number of questions; those of a stage that was begun before are left out."""
    found: dict[tuple[str, str], dict[int, Line]] = {}
    for questions, lines in sorted(measured.items()):
        for line in lines:
            if not line["is_rest"]:
                found.setdefault((line["job"], line["stage"]), {})[questions] = line
    return found
