"""Every setting of dupq, frozen. Presets are TOML files in `dupq/presets/`, changed by `--set section.name=value`."""

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dupq.errors import SettingError


@dataclass(frozen=True)
class TextSettings:
    """How a question becomes tokens."""

    code: Literal["removed", "kept", "prefixed"] = "removed"
    fields: Literal["title+body", "title"] = "title+body"


@dataclass(frozen=True)
class NearDuplicateSettings:
    """The lexical filter: MinHash-LSH over word shingles, every candidate verified."""

    shingle_size: int = 3  # words
    permutations: int = 128
    threshold: float = 0.8  # Jaccard coefficient from which a pair is a near duplicate
    false_negative_weight: float = 0.999  # of a pair that is lost, against 0.001 of one that is compared in vain
    bands: int = 0  # 0: bands and rows are chosen for the threshold by datasketch's optimum, with that weight
    rows: int = 0
    seed: int = 1  # of the permutations, as in datasketch
    chain_links: int = 32  # a question is paired with so many that follow it in its bucket
    bucket_limit: int = 100  # a larger bucket is chained by single links, and counted
    keep_signatures: bool = True  # for look-ups in a notebook: 4 bytes a permutation and question


@dataclass(frozen=True)
class WordVectorSettings:
    """gensim word2vec on the archive's own text."""

    dimensions: int = 200
    window: int = 5
    epochs: int = 5
    minimum_count: int = 3
    negative: int = 5
    workers: int = 1  # more are faster, but gensim then gives other vectors at each run
    sentences: int = 2_000_000  # questions used at most, chosen by a hash of their key


@dataclass(frozen=True)
class EncoderSettings:
    """The network."""

    kind: Literal["cnn"] = "cnn"
    units: int = 300
    window: int = 3
    pooling: Literal["sum", "max"] = "max"
    maximum_tokens: int = 512  # longer questions are cut, and counted


@dataclass(frozen=True)
class TrainingSettings:
    """Pairs, the split, and stochastic gradient descent."""

    epochs: int = 10
    batch_size: int = 16  # pairs, of all workers together
    learning_rate: float = 0.005
    negatives: int = 1  # random ones per positive pair, drawn anew each epoch
    development_share: float = 0.2  # of the duplicate clusters
    test_share: float = 0.2
    development_pool: int = 2_000  # questions that an epoch's development MAP is measured over
    negative_pool: int = 100_000  # questions that random negatives are drawn from
    calibration_pool: int = 50_000  # questions that the threshold is chosen over
    beta: float = 0.5  # of the F-measure that the threshold is chosen by: under 1, precision weighs more
    gpu: Literal["auto", "always", "never"] = "auto"  # auto: if the cluster has one for each worker now
    seed: int = 1


@dataclass(frozen=True)
class EncodeSettings:
    """The pool of encoding actors."""

    actors: int = 0  # 0: one a GPU, or one for every two CPUs
    gpus: int = 0  # one an actor; 0: those that the cluster has now. More make an autoscaling cluster start them
    batch_size: int = 64  # questions


@dataclass(frozen=True)
class NeighbourSettings:
    """All pairs, exactly."""

    k: int = 10
    block_rows: int = 4_096


@dataclass(frozen=True)
class ClusterSettings:
    """Which pairs join two questions."""

    threshold: float = -1.0  # cosine; below 0: the one chosen when the encoder was trained


@dataclass(frozen=True)
class EvaluationSettings:
    """Measures on known duplicates."""

    k: int = 100  # MAP is cut at this rank
    queries: int = 2_000  # test questions at most, chosen by a hash of their key; the metrics say how many of how many
    bm25_limit: int = 500_000  # questions; larger archives are counted but not measured: 12 kB each in one task


@dataclass(frozen=True)
class IngestSettings:
    """The archive's tables."""

    shard_rows: int = 50_000
    maximum_reject_share: float = 0.001  # of all rows; more fail the run,
    rejects_allowed: int = 10  # unless there are no more than this many
    maximum_body_bytes: int = 1_000_000  # UTF-8; a post with a longer body is rejected
    maximum_unpack_ratio: float = 200.0  # unpacked bytes a packed byte, beyond 64 MiB; a dump has 5 to 10
    maximum_unpacked_bytes: int = 1 << 40  # of one file


@dataclass(frozen=True)
class Settings:
    """All settings of one job."""

    text: TextSettings = field(default_factory=TextSettings)
    near_duplicates: NearDuplicateSettings = field(default_factory=NearDuplicateSettings)
    word_vectors: WordVectorSettings = field(default_factory=WordVectorSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    encode: EncodeSettings = field(default_factory=EncodeSettings)
    neighbours: NeighbourSettings = field(default_factory=NeighbourSettings)
    clusters: ClusterSettings = field(default_factory=ClusterSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)


DEFAULT_PRESET = "bogdanova-sum"


def preset_names() -> list[str]:
    """The presets that ship with dupq."""
    folder = importlib.resources.files("dupq") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(preset: str = DEFAULT_PRESET, assignments: list[str] | None = None) -> Settings:
    """The settings of a preset, changed by assignments like `near_duplicates.threshold=0.7`.

    Raises SettingError naming the preset or the setting that is wrong.
    """
    if preset not in preset_names():
        raise SettingError(f"--preset {preset}: no such preset; there are {', '.join(preset_names())}")
    text = (importlib.resources.files("dupq") / "presets" / f"{preset}.toml").read_text("utf-8")
    return assign(from_dict(tomllib.loads(text)), assignments or [])


def assign(settings: Settings, assignments: Iterable[str]) -> Settings:
    """`settings` changed by assignments like `near_duplicates.threshold=0.7`, and checked."""
    for assignment in assignments:
        settings = _assign(settings, assignment)
    return check(settings)


def to_dict(settings: Settings) -> dict[str, Any]:
    """Plain dictionaries, for JSON."""
    return dataclasses.asdict(settings)


def from_dict(values: dict[str, Any]) -> Settings:
    """The settings that `to_dict` or a preset file holds; what is not named keeps its default."""
    sections = {}
    for section, entries in values.items():
        section_type = _section_type(section)
        types_by_name = get_type_hints(section_type)
        for entry, value in entries.items():
            if entry not in types_by_name:
                raise SettingError(f"setting '{section}.{entry}' is unknown; there are {', '.join(types_by_name)}")
            _check_type(f"{section}.{entry}", value, types_by_name[entry])
        sections[section] = section_type(**entries)
    return Settings(**sections)


def _section_type(section: str) -> Any:
    types_by_name = get_type_hints(Settings)
    if section not in types_by_name:
        raise SettingError(f"settings section '{section}' is unknown; there are {', '.join(types_by_name)}")
    return types_by_name[section]


def _assign(settings: Settings, assignment: str) -> Settings:
    path, separator, text = assignment.partition("=")
    section, dot, entry = path.partition(".")
    if not separator or not dot:
        raise SettingError(f"--set {assignment}: write it as section.name=value")
    types_by_name = get_type_hints(_section_type(section))
    if entry not in types_by_name:
        raise SettingError(f"--set {assignment}: '{section}' has no '{entry}'; it has {', '.join(types_by_name)}")
    value = _parse(path, text, types_by_name[entry])
    changed = dataclasses.replace(getattr(settings, section), **{entry: value})
    return dataclasses.replace(settings, **{section: changed})


def _parse(path: str, text: str, wanted: Any) -> Any:
    if wanted is bool:
        if text not in ("true", "false"):
            raise SettingError(f"--set {path}={text}: true or false expected")
        return text == "true"
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            raise SettingError(f"--set {path}={text}: {wanted.__name__} expected") from None
    _check_type(path, text, wanted)
    return text


def _check_type(path: str, value: Any, wanted: Any) -> None:
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise SettingError(f"setting '{path}' is {value!r}; allowed are {', '.join(map(repr, get_args(wanted)))}")
        return
    allowed = (int, float) if wanted is float else wanted
    if isinstance(value, bool) is not (wanted is bool) or not isinstance(value, allowed):
        raise SettingError(f"setting '{path}' is {value!r}; {wanted.__name__} expected")


def _require(condition: bool, path: str, value: Any, rule: str) -> None:
    if not condition:
        raise SettingError(f"setting '{path}' is {value}; {rule}")


_AT_LEAST_ONE = {
    "near_duplicates": ["shingle_size", "permutations", "chain_links", "bucket_limit"],
    "word_vectors": ["dimensions", "window", "epochs", "minimum_count", "negative", "workers", "sentences"],
    "encoder": ["units", "window", "maximum_tokens"],
    "training": [
        "epochs",
        "batch_size",
        "negatives",
        "development_pool",
        "negative_pool",
        "calibration_pool",
    ],
    "encode": ["batch_size"],
    "neighbours": ["k", "block_rows"],
    "evaluation": ["k", "queries"],
    "ingest": ["shard_rows"],
}


def check(settings: Settings) -> Settings:
    """`settings`, or SettingError naming the first value out of its range."""
    for section, entries in _AT_LEAST_ONE.items():
        for entry in entries:
            value = getattr(getattr(settings, section), entry)
            _require(value >= 1, f"{section}.{entry}", value, "at least 1 expected")
    near, training = settings.near_duplicates, settings.training
    _require(
        0 < near.threshold <= 1,
        "near_duplicates.threshold",
        near.threshold,
        "more than 0, at most 1 expected",
    )
    weight = near.false_negative_weight
    _require(0 < weight < 1, "near_duplicates.false_negative_weight", weight, "more than 0, less than 1 expected")
    set_both = near.bands >= 1 and near.rows >= 1 and near.bands * near.rows <= near.permutations
    _require(
        set_both or near.bands == near.rows == 0,
        "near_duplicates.bands",
        near.bands,
        f"bands * rows may be at most the {near.permutations} permutations, and neither or both may be 0",
    )
    _require(settings.encoder.window % 2 == 1, "encoder.window", settings.encoder.window, "an odd number expected")
    _require(training.learning_rate > 0, "training.learning_rate", training.learning_rate, "more than 0 expected")
    _require(training.beta > 0, "training.beta", training.beta, "more than 0 expected")
    shares = training.development_share + training.test_share
    _require(
        training.development_share > 0 and training.test_share >= 0 and shares < 1,
        "training.development_share",
        training.development_share,
        "more than 0 expected, and with test_share less than 1",
    )
    _require(settings.encode.actors >= 0, "encode.actors", settings.encode.actors, "0 or more expected")
    _require(settings.encode.gpus >= 0, "encode.gpus", settings.encode.gpus, "0 or more expected")
    share = settings.ingest.maximum_reject_share
    _require(0 <= share <= 1, "ingest.maximum_reject_share", share, "0 to 1 expected")
    return settings
