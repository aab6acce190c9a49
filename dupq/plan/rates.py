"""The files that a plan is made from: what was measured on a machine, and the figures of GPUs from their vendor.

A quantity is a polynomial, its coefficients in ascending order: of the number of questions, or for requests of the
number of shards.
"""

from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dupq.errors import DupqError

_FOLDER = Path(__file__).parent
SHIPPED = _FOLDER / "rates.json"
_GPUS = _FOLDER / "gpus.json"

Shape = TypeVar("Shape", bound=BaseModel)
Coefficient = Annotated[float, Field(ge=0)]
Polynomial = Annotated[tuple[Coefficient, ...], Field(min_length=1, max_length=3)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Step(_Record):
    """Tasks of one kind, side by side."""

    label: str
    piece: Annotated[float, Field(gt=0)] | None = None  # questions of a task; None: one task does all
    cpu_seconds: Polynomial  # of all tasks together
    task_mb: Polynomial  # of questions in a task


class Stage(_Record):
    """A stage: what its driver does, then its steps one after the other."""

    job: Literal["ingest", "train", "dedup"]
    name: str
    driver_cpu_seconds: Polynomial
    driver_mb: Polynomial
    steps: tuple[Step, ...]
    written_bytes: Polynomial
    disk_bytes: Polynomial  # of all that the job has written, when the stage ends
    reads: Polynomial = (0.0,)  # S3 requests for parts or heads of objects, of the number of shards
    writes: Polynomial = (0.0,)  # all others
    grows_until: Annotated[float, Field(gt=0)] | None = None  # questions: no more are worked on
    bytes_grow_until: Annotated[float, Field(gt=0)] | None = None  # questions: what is written hardly grows with more


class Machine(_Record):
    """Where it was measured."""

    processor: str
    cpus: Annotated[int, Field(ge=1)]
    memory_gb: Annotated[float, Field(gt=0)]


class Rates(_Record):
    """What `benchmarks/rates.py` measured."""

    machine: Machine
    date: str
    versions: dict[str, str]
    how: str
    preset: str
    questions: Annotated[tuple[int, ...], Field(min_length=1)]  # of the archives that were measured
    questions_a_shard: Annotated[int, Field(ge=1)]
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _are_distinct(self) -> Self:
        names = [(stage.job, stage.name) for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError("a stage appears twice")
        return self


class Gpu(_Record):
    """A GPU, from its vendor's data sheet."""

    memory_gb: Annotated[float, Field(gt=0)]
    tflops: Annotated[float, Field(gt=0)]  # dense products in bfloat16, without sparsity
    source: str


class Gpus(_Record):
    """What is assumed of GPUs; none of it is measured."""

    efficiency: Annotated[float, Field(gt=0, le=1)]  # the share of the peak that the search reaches
    width: Annotated[int, Field(ge=1)]  # columns of the product that gives the default encoder's scores or their bounds
    date: str
    note: str
    kinds: dict[str, Gpu]


def read_rates(place: str | Path) -> Rates:
    """The rates in a file on the local disk. Raises DupqError that names it and what is wrong."""
    return _read(Path(place), Rates, "make it with benchmarks/rates.py")


def read_gpus() -> Gpus:
    """What is shipped of GPUs."""
    return _read(_GPUS, Gpus, "install dupq anew")


def _read(place: Path, shape: type[Shape], remedy: str) -> Shape:
    try:
        return shape.model_validate_json(place.read_bytes())
    except OSError as error:
        raise DupqError(f"{place}: {error.strerror or error}; {remedy}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DupqError(f"{place}: no file of rates: {where + ': ' if where else ''}{first['msg']}; {remedy}") from None
