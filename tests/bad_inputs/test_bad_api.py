"""Bad input to the Python API: one line that names what is wrong, and nothing written."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CLUSTERS, ENCODER, MANIFEST, METRICS, POINTER
from fabricated_run import CS
from world import DELETE, Damage, build_world, content, entry, files_of, removed, weights

import dupq
from dupq import DupqError

RUN = "runs/fabricated"


def opened(world: Path) -> Any:
    return dupq.open_run(str(world / "runs"))


def loaded(world: Path) -> Any:
    return dupq.load_encoder(str(world / "encoder"))


def zeroed(tensors: dict[str, np.ndarray]) -> None:
    tensors["words.weight"][:] = np.nan


class Tensor:
    """As torch's with a gradient, or in bfloat16."""

    def detach(self) -> "Tensor":
        return self

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


CASES: list[tuple[str, Callable[[Path], Any], str, Damage | None]] = [
    ("no run", lambda world: dupq.open_run(str(world / "links")), "no run is here", None),
    ("a path with a zero byte", lambda world: dupq.open_run("a\0b"), "no name of a file or folder", None),
    ("a pointer that is a list", opened, "latest.json: it holds []", content(POINTER, "[]")),
    ("inputs that are gone", lambda world: opened(world).questions, "'inputs'", entry(MANIFEST, "inputs", DELETE)),
    ("no metrics", lambda world: opened(world).metrics, "metrics.json: no such file", removed(METRICS)),
    ("no config", lambda world: opened(world).config, "config.json: no such file", removed(f"{RUN}/config.json")),
    ("clusters of text", lambda world: opened(world).clusters.arrow(), "clusters", content(CLUSTERS, "x" * 99)),
    ("no changes", lambda world: opened(world).changes, "without --previous", None),
    ("no embeddings", lambda world: opened(world).embeddings, "no such table", None),
    ("no such question", lambda world: opened(world).cluster_of(f"{CS}/999"), "no such question", None),
    ("no such column", lambda world: opened(world).pairs.arrow(["colour"]), "no column 'colour'", None),
    ("a threshold above 1", lambda world: opened(world).at(1.5), "out of range", None),
    ("both", lambda world: opened(world).at(0.5, precision=0.5), "not both", None),
    ("a run's encoder that is gone", lambda world: opened(world).encoder, "no encoder here", removed("encoder")),
    ("an encoder without settings", loaded, "'settings' is missing", entry(ENCODER, "settings", DELETE)),
    ("weights that are no numbers", loaded, "not all finite", weights(zeroed)),
    ("titles without bodies", lambda world: loaded(world).encode(["a", "b"], ["c"]), "2 titles, but 1 bodies", None),
    ("one text", lambda world: dupq.find_duplicates("How to bake"), "one text", None),
    ("no text", lambda world: dupq.find_duplicates([1, 2]), "no text", None),
    ("nothing", lambda world: dupq.find_duplicates([]), "none of the 0 texts", None),
    ("no titles", lambda world: dupq.find_duplicates({"name": ["a"]}), "no column 'title'", None),
    ("nan", lambda world: dupq.find_duplicates(["a"], threshold=float("nan")), "threshold=nan", None),
    ("neighbours that are no whole number", lambda world: dupq.find_duplicates(["a"], k=3.0), "k=3.0 is float", None),  # type: ignore[arg-type]
    ("no such format", lambda world: dupq.find_duplicates(["a"], format="md"), "'md': auto, html, plain", None),  # type: ignore[arg-type]
    ("a reranker that is a number", lambda world: dupq.find_duplicates(["a"], reranker=5), "reranker= is int", None),  # type: ignore[arg-type]
    (
        "vectors in no array",
        lambda world: dupq.find_duplicates(["a"], encoder=np.array(5.0)),
        "array of shape ()",
        None,
    ),
    ("vectors in a tensor", lambda world: dupq.find_duplicates(["a"], encoder=lambda _: Tensor()), ".detach()", None),
    (
        "a judge of words",
        lambda world: dupq.find_duplicates(["a b", "a c"], judge=lambda *_: "same"),
        "returned 'same'",
        None,
    ),  # type: ignore[arg-type, return-value]
    ("its encoder is gone", lambda world: dupq.find_duplicates(["a"], encoder="/nowhere"), "no encoder here", None),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad_api") / "world"
    build_world(folder)
    return folder


@pytest.mark.parametrize(("ask", "said", "damage"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_bad_input_is_one_line(
    ask: Callable[[Path], Any], said: str, damage: Damage | None, whole: Path, tmp_path: Path
) -> None:
    world = Path(shutil.copytree(whole, tmp_path / "world")) if damage else whole
    if damage:
        damage(world)
    before = files_of(world)

    with pytest.raises(DupqError) as raised:
        ask(world)

    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert files_of(world) == before
