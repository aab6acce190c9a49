"""Bad input to the Python API: one line that names what is wrong, and nothing written. tests/api/ has more of it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CLUSTERS, ENCODER, MANIFEST, METRICS, POINTER
from world import DELETE, Damage, build_world, content, entry, files_of, removed, weights

import dupq
from dupq import DupqError


def opened(world: Path) -> Any:
    return dupq.open_run(str(world / "runs"))


def zeroed(tensors: dict[str, np.ndarray]) -> None:
    tensors["words.weight"][:] = np.nan


DAMAGED: list[tuple[Callable[[Path], Any], str, Damage]] = [
    (opened, "latest.json: it holds []", content(POINTER, "[]")),
    (lambda world: opened(world).questions, "'inputs'", entry(MANIFEST, "inputs", DELETE)),
    (lambda world: opened(world).metrics, "metrics.json: no such file", removed(METRICS)),
    (lambda world: opened(world).config, "config.json: no such file", removed("runs/fabricated/config.json")),
    (lambda world: opened(world).clusters.arrow(), "clusters", content(CLUSTERS, "x" * 99)),
    (lambda world: opened(world).encoder, "no encoder here", removed("encoder")),
    (lambda world: dupq.load_encoder(str(world / "encoder")), "'settings'", entry(ENCODER, "settings", DELETE)),
    (lambda world: dupq.load_encoder(str(world / "encoder")), "not all finite", weights(zeroed)),
]


@pytest.mark.parametrize(("ask", "said", "damage"), DAMAGED)
def test_what_is_damaged_is_one_line(ask: Callable[[Path], Any], said: str, damage: Damage, tmp_path: Path) -> None:
    build_world(tmp_path / "whole")
    world = Path(shutil.copytree(tmp_path / "whole", tmp_path / "world"))
    damage(world)
    before = files_of(world)
    with pytest.raises(DupqError, match=f"^.*{re.escape(said)}.*$"):
        ask(world)
    assert files_of(world) == before


class Tensor:
    """As torch's with a gradient, or in bfloat16."""

    def detach(self) -> "Tensor":
        return self

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ("How to bake", {}, "one text"),
        ({"name": ["a"]}, {}, "no column 'title'"),
        (["a"], {"threshold": float("nan")}, "threshold=nan"),
        (["a"], {"k": 3.0}, "k=3.0 is float"),
        (["a"], {"format": "md"}, "'md': auto, html, plain"),
        (["a"], {"reranker": 5}, "reranker= is int"),
        (["a"], {"encoder": lambda _: Tensor()}, ".detach()"),
        (["a b", "a c"], {"judge": lambda *_: "same"}, "returned 'same'"),
        (["a b", "a c"], {"judge": lambda *_: 700}, "judge= returned 700; 0 to 100"),
    ],
)
def test_what_cannot_be_compared_is_one_line(given: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DupqError, match=f"^.*{re.escape(said)}.*$"):
        dupq.find_duplicates(given, **options)


@pytest.mark.parametrize(("path", "said"), [("a\0b", "no name of a file or folder"), ("/nowhere", "no run is here")])
def test_a_path_of_no_run_is_one_line(path: str, said: str) -> None:
    with pytest.raises(DupqError, match=said):
        dupq.open_run(path)


def test_decisions_are_by_a_threshold_or_a_precision(tmp_path: Path) -> None:
    build_world(tmp_path)
    for options, said in (({"threshold": 1.5}, "out of range"), ({"threshold": 0.5, "precision": 0.5}, "not both")):
        with pytest.raises(DupqError, match=said):
            opened(tmp_path).at(**options)
