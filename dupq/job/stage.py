"""Stages: typed functions of a run and tables, which a job's page calls one after the other.

`@stage` makes a function a stage. It is called once in a run: what it returns is stored as JSON in the stage's record,
and a later attempt reads it there. So it returns tables (`Table`, `Shuffled`), numbers, texts, and dicts of numbers and
texts, in tuples and lists whose types it declares. The versions of a job's stages are part of the identity of its runs.
"""

import functools
import inspect
import logging
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from dupq import storage
from dupq.job.records import StageRecord, is_intact, record_of
from dupq.job.run import Run
from dupq.job.table import Stored
from dupq.storage import read_or_none

_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T", covariant=True)


class Stage(Generic[P, T]):
    """A function that makes tables of a run once, and whose answer has a version."""

    def __init__(
        self,
        function: Callable[Concatenate[Run, P], T],
        name: str,
        version: int,
        keeps: tuple[str, ...],
        drops: str | None,
        folder: str,
    ) -> None:
        """Take over the function's name and docstring."""
        functools.update_wrapper(self, function)
        self.function, self.name, self.version, self.keeps = function, name, version, keeps
        self.drops, self.folder = drops, folder

    def __call__(self, run: Run, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the stage's answer: from the run if it is finished there, else from the function.

        Raises TypeError, before any task, for a call that does not fit the function.
        """
        if run.algorithms and run.algorithms.get(self.name) != self.version:
            raise TypeError(f"{self.name}: this stage and its version are no part of the run's identity; see Run.open")
        try:
            inspect.signature(self.function).bind(run, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        record = run.finish(
            self.name, self.folder, lambda: _as_json(self.function(run, *args, **kwargs), run.uri), self.drops
        )
        return self._answer(record, run.uri)

    def _answer(self, record: StageRecord, run: str) -> T:
        return typing.cast(T, _of_json(typing.get_type_hints(self.function)["return"], record["made"], run))

    def earlier(self, run: Run, made_as: Mapping[str, object]) -> T | None:
        """Return the answer of this stage in the earlier run that `run` builds on; see `answer_in`.

        What `made_as` says is recorded for later runs. A line says why nothing is taken.
        """
        run.made_as = dict(made_as)
        return self.answer_in(run.previous, made_as, is_told=True)

    def answer_in(self, earlier: str | None, made_as: Mapping[str, object], is_told: bool = False) -> T | None:
        """Return the answer of this stage in an earlier run (URI); None if there is none, or it cannot be used.

        It can if it was made by all that `made_as` says (JSON), and if the files that the stage keeps are unchanged.
        """
        if earlier is None:
            return None
        record = read_or_none(record_of(earlier, self.name), StageRecord)
        different = sorted(name for name, value in made_as.items() if record and record["made_as"].get(name) != value)
        if record is None:
            why_not = "it has kept no results"
        elif different:
            why_not = f"its results were made with another {', '.join(different)}"
        elif not is_intact(earlier, record, self.keeps):
            why_not = "it has lost some of its results"
        else:
            return self._answer(record, earlier)
        if is_told:
            _log.info(f"{self.name}: nothing is taken from {earlier}: {why_not}")
        return None


def stage(
    name: str, version: int, keeps: tuple[str, ...] = (), drops: str | None = None, folder: str = ""
) -> Callable[[Callable[Concatenate[Run, P], T]], Stage[P, T]]:
    """Make a function a stage.

    Raise the `version` when the stage's answer changes. `keeps` are the files and folders of the run that a later run
    reads by `earlier`; `drops` is a folder of the run that no later stage needs, that is removed at the stage's end.
    `folder` is the name that several stages share for their tables, by default the stage's own.
    """
    return lambda function: Stage(function, name, version, keeps, drops, folder or name)


def versions_of(*stages: Stage[..., object]) -> dict[str, int]:
    """Return the version of each stage, for the identity of a run."""
    return {each.name: each.version for each in stages}


def _as_json(value: object, run: str) -> object:
    """Return a stage's answer as JSON; tables are described, with paths below the run."""
    if isinstance(value, Stored):
        return value.described(run)
    if isinstance(value, tuple | list):
        return [_as_json(each, run) for each in value]
    return value


def _of_json(hint: object, value: object, run: str) -> object:
    """Return the value of this type that `_as_json` wrote."""
    kind: Any = typing.get_origin(hint) or hint
    inner = typing.get_args(hint)
    if value is None or not isinstance(value, list | dict):
        return value
    if isinstance(value, dict) and value.keys() == {"recorded in"}:  # in records before 2026-11-30
        return storage.read_json(storage.join(run, value["recorded in"]))
    if kind in (types.UnionType, typing.Union):
        return _of_json(next(each for each in inner if each is not type(None)), value, run)
    if kind is list:
        return [_of_json(inner[0], each, run) for each in value]
    if kind is tuple:
        hints: Any = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return tuple(_of_json(*both, run) for both in zip(hints, value, strict=True))
    if isinstance(kind, type) and issubclass(kind, Stored):
        return kind.of_description(typing.cast(dict[str, object], value), run)
    if isinstance(kind, type) and issubclass(kind, tuple):  # a NamedTuple
        hints = typing.get_type_hints(kind).values()
        return typing.cast(Any, kind)(*(_of_json(*both, run) for both in zip(hints, value, strict=True)))
    return value
