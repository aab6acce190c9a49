"""Every setting of dupq, frozen. Presets are TOML files in `dupq/presets/`, changed by `--set section.name=value`."""

import dataclasses
import importlib.resources
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dupq.errors import SettingError

_ONLY_HOW = {"only_how": True}  # metadata of a setting that says how a run is made and changes nothing of its answer

Language = Literal["arabic", "english", "french", "german", "italian", "portuguese", "russian", "spanish"]


@dataclass(frozen=True)
class TextSettings:
    """How a question becomes tokens."""

    # what is stored, and read by the lexical filter, the baselines and the encoder
    code: Literal["removed", "kept", "prefixed"] = "removed"
    fields: Literal["title+body", "title"] = "title+body"
    # what only the encoder reads, made from that
    title_times: int = 1  # the title stands so many times before the body
    language: Language = "english"  # of stop words, stems and lemmas
    word_form: Literal["written", "stems", "lemmas"] = "written"
    stop_words: Literal["kept", "removed"] = "kept"
    parts_of_speech: Literal["all", "content"] = "all"  # content: nouns, verbs, adjectives; English only
    links: Literal["token", "removed"] = "token"  # LINK for each
    dates: Literal["kept", "date"] = "kept"
    digits: Literal["kept", "num"] = "kept"  # tokens of digits only
    arabic: Literal["written", "normalised"] = "written"  # diacritics, stretching, letter forms


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
    same_numbers: bool = True  # "… 2013" and "… 2014" in titles are two questions, however alike the texts
    chain_links: int = 32  # a question is paired with so many that follow it in its bucket
    bucket_limit: int = 100  # a larger bucket is chained by single links, and counted
    keep_signatures: bool = True  # for look-ups in a notebook: 4 bytes a permutation and question


@dataclass(frozen=True)
class WordVectorSettings:
    """gensim word2vec on the archive's own text, or vectors that are there already."""

    # random: normal, of length 1 on average; teacher: its embeddings of single words
    algorithm: Literal["skip-gram", "cbow", "random", "teacher"] = "skip-gram"
    dimensions: int = 200
    window: int = 5
    epochs: int = 5
    minimum_count: int = 3
    objective: Literal["negative-sampling", "hierarchical-softmax", "both"] = "negative-sampling"
    negative: int = 5  # noise words a word, unless the objective is hierarchical softmax alone
    sample: float = 1e-3  # words that are a larger share of the text are down-sampled; 0: none
    workers: int = 1  # threads; more are faster, but gensim then gives other vectors at each run
    answers: Literal["read", "ignored"] = "read"  # those ingested beside the questions, if there are any
    sentences: int = 0  # questions used at most, chosen by a hash of their key, and as many answers; 0: all
    words: int = 1_000_000  # the most frequent ones; the others are unknown words, and counted
    hashed: int = 0  # ids that all other words share by a hash; 0: they are one unknown word
    counted_words: int = 10_000_000  # while counting: over it the rarest are dropped, 100 bytes each, and counted
    file: str = ""  # URI of vectors to read instead: word2vec text or binary, or GloVe text, .gz too
    absent: Literal["random", "mean"] = "random"  # what a word gets that the file lacks


@dataclass(frozen=True)
class EncoderSettings:
    """The network."""

    # dupq/encoders/: cnn.py, bow_cnn.py (max_cnn: without the bag of words), recurrent.py (lstm, gru), width_cnn.py,
    # sif.py, mappsent.py, word_bag.py, word_bag_cnn.py, pretrained.py (sentence_transformers)
    kind: Literal[
        "cnn",
        "max_cnn",
        "bow_cnn",
        "lstm",
        "gru",
        "width_cnn",
        "sif",
        "mappsent",
        "word_bag",
        "word_bag_cnn",
        "sentence_transformers",
    ] = "cnn"
    model: str = ""  # local folder of a model, the same on every machine; sentence_transformers
    units: int = 300  # length of an embedding; word_bag_cnn: of a window's features
    window: int = 3  # words; cnn, max_cnn, bow_cnn, word_bag_cnn
    pooling: Literal["sum", "max", "final", "attention"] = "max"  # sum, max: cnn; final, attention: lstm, gru
    widths: tuple[int, ...] = (2, 3, 4)  # words; width_cnn
    filters: int = 32  # of each width; width_cnn
    dropout: float = 0.5  # width_cnn; word_bag, word_bag_cnn: of whole words
    similarity: Literal["cosine", "manhattan", "euclidean"] = "cosine"  # lstm, gru, width_cnn; others are by cosine
    word_vectors: Literal["learned", "fixed"] = "learned"  # learned: further, with the network
    first_word_weights: Literal["idf", "ones"] = "idf"  # bow_cnn
    word_weights: Literal["learned", "fixed"] = "learned"  # bow_cnn
    smoothing: float = 1e-3  # a of a / (a + p(w)); sif
    mapping: Literal["orthogonal", "none"] = "orthogonal"  # none: the paper's MappSent-; mappsent
    removed_components: int = 0  # first principal components; sif, mappsent
    maximum_tokens: int = 512  # longer questions are cut, and counted


@dataclass(frozen=True)
class TitleBodySettings:
    """Training before that on known duplicates: which body belongs to which title. Every archive has such pairs."""

    epochs: int = 0
    questions: int = 200_000  # at most, chosen by a hash of their key
    batch_size: int = 512  # pairs, of one site as far as there are enough
    span: int = 12  # words: pieces of this length are dealt out where two halves of a body are told from others
    learning_rate: float = 0.002  # at the first step, from which it falls to 0
    temperature: float = 0.05


@dataclass(frozen=True)
class TeacherSettings:
    """Training after that on titles and bodies: to find alike what a better and slower encoder finds alike."""

    encoder: str = ""  # URI of a saved encoder; none: no such training
    questions: int = 20_000  # at most that it encodes, chosen by a hash of their key
    held_out: bool = False  # also those of the development and test parts: their texts, not what they are duplicates of
    epochs: int = 12
    batch_size: int = 768
    learning_rate: float = 0.0005  # at the first step, from which it falls to 0
    temperature: float = 0.05  # of both distributions over the other questions of a batch
    alike_batches: bool = False  # every second epoch has batches of questions that the teacher finds alike


@dataclass(frozen=True)
class TrainingSettings:
    """Pairs, the split, and gradient descent."""

    epochs: int = 10
    patience: int = 0  # epochs without a better development MAP after which training stops; 0: it never does
    batch_size: int = 16  # pairs, of all workers together; logistic_ranking, softmax: positive pairs
    loss: Literal["squared_error", "mean_squared_error", "logistic_ranking", "softmax"] = "squared_error"
    gamma: float = 10.0  # of logistic_ranking
    temperature: float = 0.05  # of softmax, which scores are divided by
    optimizer: Literal["sgd", "adagrad", "adadelta", "adam"] = "sgd"
    learning_rate: float = 0.005
    decay: Literal["none", "linear"] = "none"  # linear: the learning rate falls to 0 at the last step
    gradient_clipping: float = 0.0  # the gradient's greatest length, all parameters together; 0: not clipped
    positives: Literal["closed", "links"] = "closed"  # closed: every pair of a set of duplicates
    set_pairs: int = 1_000  # pairs of one set at most; of a larger one some are drawn, and the others counted
    pairs: int = 0  # positive pairs trained on at most, chosen by a hash of their keys; 0: all
    negatives: int = 1  # random questions per positive pair; logistic_ranking uses the hardest; 0 if others are there
    negatives_drawn: Literal["each-epoch", "once"] = "each-epoch"  # in another order each epoch either way
    mined_negatives: int = 0  # per positive pair: the encoder's own nearest questions that are no known duplicates
    mined_epochs: int = 1  # they are mined anew each so many epochs
    development_share: float = 0.2  # of the duplicate clusters
    test_share: float = 0.2
    development_pool: int = 2_000  # questions that an epoch's development MAP is measured over
    negative_pool: int = 100_000  # questions that random and mined negatives are from, of the training part or of none
    # auto: if the cluster has one for each worker now
    gpu: Literal["auto", "always", "never"] = field(default="auto", metadata=_ONLY_HOW)
    seed: int = 1


@dataclass(frozen=True)
class EncodeSettings:
    """The pool of encoding actors."""

    actors: int = field(default=0, metadata=_ONLY_HOW)  # 0: one a GPU, or one for every two CPUs
    # one an actor; 0: those that the cluster has now. More make an autoscaling cluster start them
    gpus: int = field(default=0, metadata=_ONLY_HOW)
    batch_size: int = 64  # questions; on a GPU, and of bags of words: a CPU does the rest without batches


@dataclass(frozen=True)
class NeighbourSettings:
    """All pairs: exactly, or for archives beyond that only among questions in lists that lie near each other."""

    k: int = 10
    scope: Literal["all", "site"] = "all"  # site: only questions of one site are compared
    sites: tuple[str, ...] = ()  # only questions of these; none: of all
    block_rows: int = field(default=0, metadata=_ONLY_HOW)  # questions of a block of a tile; 0: as memory allows
    pairs_per_question: int = 100  # above the floor, on average: if there are more, only the k nearest are kept
    method: Literal["exact", "ivf"] = "exact"  # ivf: loses some neighbours; how many is measured and counted
    ivf_lists: int = 0  # of all questions, or of each site's if scope is site; 0: the root of their number
    ivf_probes: int = 32  # lists that a question is searched for in
    ivf_sample: int = 1_000  # questions, about so many, whose exact neighbours are looked up to measure the recall


@dataclass(frozen=True)
class CalibrationSettings:
    """What a run's probabilities are made from, and how sure the pairs that join questions must be."""

    precision: float = 0.7  # expected share of the pairs that may join questions that are duplicates
    links: int = 1_000  # questions with known duplicates that are searched for it, at most
    sample: int = 1_000  # other questions, at most, chosen by a hash of their key
    review: int = 200  # pairs of the sample that people may judge
    prior: str = ""  # URI of another prior than dupq's own; benchmarks/prior.py makes them
    unfit: Literal["stop", "continue"] = "stop"  # where the encoder does not know the archive
    unknown_words: float = 0.3  # share of the words that may be unknown beyond that where the encoder was trained
    bodies_found: float = 0.3  # of the bodies found by their titles where it was trained, the share to be found here


@dataclass(frozen=True)
class ClusterSettings:
    """How pairs become clusters."""

    threshold: float = -1.0  # probability from which a pair may join; below 0: as calibration.precision wants it
    scored_size: int = 1_000  # questions of a component of which every pair is scored; beyond it, only candidates
    known_links: Literal["use", "ignore", "check"] = "check"  # use: they join; check: for calibration and measures only


@dataclass(frozen=True)
class EvaluationSettings:
    """Measures on known duplicates."""

    k: int = 100  # MAP is cut at this rank
    # test questions at most, and planted ones, chosen by a hash of their key; the metrics say how many of how many
    queries: int = 2_000


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
    title_body: TitleBodySettings = field(default_factory=TitleBodySettings)
    teacher: TeacherSettings = field(default_factory=TeacherSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    encode: EncodeSettings = field(default_factory=EncodeSettings)
    neighbours: NeighbourSettings = field(default_factory=NeighbourSettings)
    calibration: CalibrationSettings = field(default_factory=CalibrationSettings)
    clusters: ClusterSettings = field(default_factory=ClusterSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)


DEFAULT_PRESET = "dupq"
_RETIRED = {"evaluation.bm25_limit"}  # settings that encoders may have been saved with, and that mean nothing now


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


def assign_free(trained: Settings, assignments: Iterable[str], free: tuple[str, ...]) -> Settings:
    """`assign` to the settings of an encoder, of which only the sections named in `free` may change."""
    assignments = tuple(assignments)
    for assignment in assignments:
        if assignment.partition(".")[0] not in free:
            raise SettingError(f"--set {assignment}: fixed when the encoder was trained; free are {', '.join(free)}")
    return assign(trained, assignments)


def to_dict(settings: Settings) -> dict[str, Any]:
    """Plain dictionaries, for JSON."""
    return dataclasses.asdict(settings)


def answer_settings(settings: Settings) -> dict[str, Any]:
    """As `to_dict`, without the settings that change nothing of the answer."""
    sections = {}
    for name, values in to_dict(settings).items():
        fields = dataclasses.fields(getattr(settings, name))
        only_how = {field.name for field in fields if "only_how" in field.metadata}
        sections[name] = {entry: value for entry, value in values.items() if entry not in only_how}
    return sections


def from_dict(values: dict[str, Any]) -> Settings:
    """The settings that `to_dict` or a preset file holds; what is not named keeps its default."""
    sections = {}
    for section, entries in values.items():
        section_type = _section_type(section)
        types_by_name = get_type_hints(section_type)
        entries = {entry: value for entry, value in entries.items() if f"{section}.{entry}" not in _RETIRED}
        for entry, value in entries.items():
            if entry not in types_by_name:
                raise SettingError(f"setting '{section}.{entry}' is unknown; there are {', '.join(types_by_name)}")
            _check_type(f"{section}.{entry}", value, types_by_name[entry])
        # JSON and TOML have lists only
        frozen = {entry: tuple(value) if isinstance(value, list) else value for entry, value in entries.items()}
        sections[section] = section_type(**frozen)
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
    if wanted == tuple[str, ...]:
        return tuple(part for part in text.split(",") if part)
    if get_origin(wanted) is tuple:
        try:
            return tuple(int(part) for part in text.split(","))
        except ValueError:
            raise SettingError(f"--set {path}={text}: whole numbers with commas between them expected") from None
    _check_type(path, text, wanted)
    return text


def _check_type(path: str, value: Any, wanted: Any) -> None:
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise SettingError(f"setting '{path}' is {value!r}; allowed are {', '.join(map(repr, get_args(wanted)))}")
        return
    if get_origin(wanted) is tuple:
        kind = get_args(wanted)[0]
        if not isinstance(value, list | tuple) or not all(type(part) is kind for part in value):
            named = {int: "whole numbers", str: "names"}[kind]
            raise SettingError(f"setting '{path}' is {value!r}; a list of {named} expected")
        return
    allowed = (int, float) if wanted is float else wanted
    if isinstance(value, bool) is not (wanted is bool) or not isinstance(value, allowed):
        raise SettingError(f"setting '{path}' is {value!r}; {wanted.__name__} expected")


def _require(condition: bool, path: str, value: Any, rule: str) -> None:
    if not condition:
        raise SettingError(f"setting '{path}' is {value}; {rule}")


_AT_LEAST_ONE = {
    "text": ["title_times"],
    "title_body": ["questions", "batch_size", "span"],
    "teacher": ["questions", "batch_size"],
    "near_duplicates": ["shingle_size", "permutations", "chain_links", "bucket_limit"],
    "word_vectors": [
        "dimensions",
        "window",
        "epochs",
        "minimum_count",
        "negative",
        "workers",
        "words",
        "counted_words",
    ],
    "encoder": ["units", "window", "filters", "maximum_tokens"],
    "training": [
        "epochs",
        "batch_size",
        "set_pairs",
        "mined_epochs",
        "development_pool",
        "negative_pool",
    ],
    "encode": ["batch_size"],
    "neighbours": ["k", "pairs_per_question", "ivf_probes", "ivf_sample"],
    "calibration": ["sample", "review"],
    "clusters": ["scored_size"],
    "evaluation": ["k", "queries"],
    "ingest": ["shard_rows"],
}


_ANY_SIMILARITY = ("cosine", "manhattan", "euclidean")
_POOLINGS = {"cnn": ("sum", "max"), "lstm": ("final", "attention"), "gru": ("final", "attention")}
_SIMILARITIES = {"lstm": _ANY_SIMILARITY, "gru": _ANY_SIMILARITY, "width_cnn": _ANY_SIMILARITY}


def _check_encoder(encoder: EncoderSettings) -> None:
    _require(encoder.window % 2 == 1, "encoder.window", encoder.window, "an odd number expected")
    _require(encoder.smoothing > 0, "encoder.smoothing", encoder.smoothing, "more than 0 expected")
    removed = encoder.removed_components
    _require(removed >= 0, "encoder.removed_components", removed, "0 or more expected")
    least = min(encoder.widths, default=0)
    _require(least >= 1, "encoder.widths", encoder.widths, "one or more widths of at least 1 expected")
    _require(0 <= encoder.dropout < 1, "encoder.dropout", encoder.dropout, "at least 0, less than 1 expected")
    poolings = _POOLINGS.get(encoder.kind, (encoder.pooling,))
    rule = f"allowed for encoder.kind={encoder.kind} are {', '.join(poolings)}"
    _require(encoder.pooling in poolings, "encoder.pooling", repr(encoder.pooling), rule)
    similarities = _SIMILARITIES.get(encoder.kind, ("cosine",))
    rule = f"encoder.kind={encoder.kind} is scored by cosine"
    _require(encoder.similarity in similarities, "encoder.similarity", repr(encoder.similarity), rule)


def _check_training(training: TrainingSettings) -> None:
    for entry in ("learning_rate", "gamma", "temperature"):
        value = getattr(training, entry)
        _require(value > 0, f"training.{entry}", value, "more than 0 expected")
    for entry in ("gradient_clipping", "patience", "pairs", "negatives", "mined_negatives"):
        value = getattr(training, entry)
        _require(value >= 0, f"training.{entry}", value, "0 or more expected")
    shares = training.development_share + training.test_share
    _require(
        training.development_share > 0 and training.test_share >= 0 and shares < 1,
        "training.development_share",
        training.development_share,
        "more than 0 expected, and with test_share less than 1",
    )


def _check_calibration(calibration: CalibrationSettings) -> None:
    for entry in ("precision", "unknown_words", "bodies_found"):
        value = getattr(calibration, entry)
        _require(0 <= value <= 1, f"calibration.{entry}", value, "0 to 1 expected")
    _require(calibration.precision > 0, "calibration.precision", calibration.precision, "more than 0 expected")
    _require(calibration.links >= 0, "calibration.links", calibration.links, "0 or more expected")


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
    words = settings.word_vectors
    for entry in ("sample", "sentences", "hashed"):
        value = getattr(words, entry)
        _require(value >= 0, f"word_vectors.{entry}", value, "0 or more expected")
    _require(
        settings.text.parts_of_speech == "all" or settings.text.language == "english",
        "text.parts_of_speech",
        repr(settings.text.parts_of_speech),
        "only English texts can be tagged; 'all' expected for text.language=" + settings.text.language,
    )
    _check_encoder(settings.encoder)
    _check_training(training)
    for section, lesson in (("title_body", settings.title_body), ("teacher", settings.teacher)):
        _require(lesson.epochs >= 0, f"{section}.epochs", lesson.epochs, "0 or more expected")
        for entry in ("learning_rate", "temperature"):
            value = getattr(lesson, entry)
            _require(value > 0, f"{section}.{entry}", value, "more than 0 expected")
    _check_calibration(settings.calibration)
    threshold = settings.clusters.threshold
    _require(
        threshold <= 1, "clusters.threshold", threshold, "a probability expected, or less than 0 to have it chosen"
    )
    lists = settings.neighbours.ivf_lists
    _require(0 <= lists <= 1 << 20, "neighbours.ivf_lists", lists, "0 to 1,048,576 expected")
    _require(settings.encode.actors >= 0, "encode.actors", settings.encode.actors, "0 or more expected")
    _require(settings.encode.gpus >= 0, "encode.gpus", settings.encode.gpus, "0 or more expected")
    share = settings.ingest.maximum_reject_share
    _require(0 <= share <= 1, "ingest.maximum_reject_share", share, "0 to 1 expected")
    return settings
