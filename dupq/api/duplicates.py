"""Finding the duplicates in a list of texts, without files and without Ray: `dupq.find_duplicates`.

    texts      ──near_pairs──▶     verified pairs; one text represents its near duplicates
    texts      ──learn──▶          the encoder that ships with dupq, with the rarities of these words
    embeddings ──all_pairs──▶      the k nearest of each, exactly
    neighbours ──scored_table──▶   pairs with a probability, by the priors that ship with dupq
    pairs      ──cosines──▶        with a teacher: its cosines of those that are likely
    pairs      ──decide──▶         clusters

The steps of a run, on arrays; a run also learns from the known duplicates of its archive.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from dupq import storage, system
from dupq.api.encoders import Comparison, TextEncoder, TitlesAlone, load_encoder
from dupq.api.inputs import Given, given_texts, share
from dupq.clusters.calibration import OF_TITLES, read_prior
from dupq.clusters.components import components, represented, with_represented
from dupq.clusters.decision import SCORED_SIZE, decide, histogram_of
from dupq.encoders.saved import Reader
from dupq.encoders.sentence_models import FLOOR, Teacher, cosines_of, teacher_at, teacher_texts, teacher_vectors
from dupq.errors import DupqError, SettingError
from dupq.near_duplicates.asking import Asking, Title, signs_of
from dupq.near_duplicates.pairing import NearPairs, Said, near_pairs
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.report.summary import counted
from dupq.runs.reader import TableView, in_memory
from dupq.runs.scoring import NewTexts, words_of_rows
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import Language, TextSettings
from dupq.system import require
from dupq.text import tokens
from dupq.text.languages import language_of
from dupq.text.questions import content_hashes, document_counts, rare_words, rarities, texts_table
from dupq.training.word_vectors import counted as counted_words

Name = int | str  # of a text: its id, or its row
Encode = Callable[[list[str]], Any]  # texts to an array of floats, (n, d), compared by their cosines
_FOR_LANGUAGE = 10_000  # titles in which it is looked for
_SHOWN = 10  # pairs
_MODEL_CALL = "find_duplicates: encoder="


def _schemas(ids: pa.DataType) -> tuple[pa.Schema, pa.Schema]:
    """The schemas of pairs and of clusters, of texts that are named so."""
    pairs = [
        pa.field("left", ids, nullable=False),  # as texts are named: by the column or index of ids, else by row from 0
        pa.field("right", ids, nullable=False),
        pa.field("title_left", pa.string(), nullable=False),
        pa.field("title_right", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),  # exact, near_duplicate or encoder
        pa.field("jaccard", pa.float32()),  # of the shingle sets; null for source encoder
        pa.field("similarity", pa.float32()),  # score by the encoder; null unless source is encoder
        pa.field("probability", pa.float32(), nullable=False),
        pa.field("joined", pa.bool_(), nullable=False),  # whether both are in one cluster
        pa.field("teacher", pa.float32()),  # cosine by the teacher; null without one, below a floor and for near pairs
    ]
    clusters = [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("id", ids, nullable=False),  # as `left` and `right` of pairs
        pa.field("title", pa.string(), nullable=False),
        pa.field("cluster", ids, nullable=False),  # that of the cluster's first row
        pa.field("cluster_size", pa.int64(), nullable=False),
    ]
    return pa.schema(pairs), pa.schema(clusters)


@dataclass(frozen=True, repr=False)
class Duplicates:
    """What was found in n texts. They are named by their ids, if they have any, else by their rows, from 0."""

    pairs: TableView  # candidate pairs, the most probable first
    clusters: TableView  # a row for each text
    threshold: float  # the probability from which a pair may join
    expected_precision: float  # of the encoder's pairs from there on
    encoder: "TextEncoder | Encode | np.ndarray"  # that was used
    read: tuple[str, ...] = ()  # columns of a table
    not_read: tuple[str, ...] = ()  # those of its columns that hold texts too

    def groups(self) -> list[list[Name]]:
        """The clusters of two and more, as ids or rows; the largest first."""
        table = self.clusters.arrow(["id", "cluster"], [("cluster_size", ">", 1)])
        found: dict[Name, list[Name]] = {}
        for name, cluster in zip(table["id"].to_pylist(), table["cluster"].to_pylist(), strict=True):
            found.setdefault(cluster, []).append(name)
        return sorted(found.values(), key=lambda names: -len(names))

    def keep(self) -> list[Name]:
        """The ids or rows of the texts without duplicates: of each cluster the first one, in their order."""
        return self._named(is_first=True)

    def drop(self) -> list[Name]:
        """Those of the others: each is a duplicate of one that `keep` has."""
        return self._named(is_first=False)

    def __repr__(self) -> str:
        """Return what was found, and the likeliest pairs."""
        rows = self.pairs.arrow(["title_left", "title_right", "probability"]).slice(0, _SHOWN).to_pylist()
        lines = [f"  {row['probability']:.3f}  {row['title_left']}  =  {row['title_right']}" for row in rows]
        return "\n".join([self._said(), *lines])

    def _repr_html_(self) -> str:
        return Markup("<p>{}</p>").format(self._said()) + self.pairs._repr_html_()

    def _said(self) -> str:
        groups, kept = self.groups(), len(self.keep())
        among = f"{counted(len(self.clusters), 'text')}: {kept:,} to keep"
        found = f"{counted(len(groups), 'group')} of duplicates among {among}"
        read = f"; read {', '.join(self.read)}" if self.read else ""
        return found + read + (f"; not read {', '.join(self.not_read)}" if self.not_read else "")

    def _named(self, is_first: bool) -> list[Name]:
        table = self.clusters.arrow(["id", "cluster"])
        rows = zip(table["id"].to_pylist(), table["cluster"].to_pylist(), strict=True)
        return [name for name, cluster in rows if (name == cluster) is is_first]


def find_duplicates(
    texts: Any,
    *,
    encoder: "str | os.PathLike[str] | TextEncoder | Encode | np.ndarray | None" = None,
    threshold: float = 0.5,
    precision: float | None = None,
    k: int = 10,
    language: Language = "auto",
    teacher: str | os.PathLike[str] | None = None,
    format: "tokens.Markup" = "auto",
) -> Duplicates:
    """The pairs and clusters of duplicates among some thousand texts.

    `texts` is a list or a column (pandas, Polars, Arrow) of titles, or a table (pandas, Polars, also lazy, Arrow, a
    TableView of a run, a dictionary of columns, or a list of records) with the column `title` (or `question`,
    `subject`, `headline`) and, if there is one, `body_html`, `body`, `text`, `description` or `content`, which is
    HTML or plain text as `format` says, "html" or "plain"; with "auto" it is HTML if its name ends in html or more than
    half of its first 1,000 texts have a closing tag, as on the command line. A text that is missing (None, NaN) is an
    empty one. Texts are named by the column `id` or `question_id`, or by the index of a pandas table or column that has
    one of its own; else by their rows. Other columns are not read, and the answer says which.

    They are encoded by the encoder that ships with dupq, which counts how rare their words are, or by `encoder`: the
    address of a saved one, which then says how texts are read; the name or folder of a sentence-transformers model; a
    function that makes a vector of each text; or the vectors themselves (float, shape (n, d)), which are compared by
    their cosines. In another language than English one is learned on the texts. `language` "auto" is that of most
    titles.

    Pairs that the encoder finds may join from `threshold` on, a probability, or if `precision` is given from where that
    is expected of them. Copies and near duplicates join whatever the threshold is, at 1 too. The `k` nearest of each
    text are looked at; `language` is for the stems of words, unless an encoder is named. A `teacher` reads what is in
    likely pairs: a sentence-transformers model, as its folder, a package that has one, or a name on the Hugging Face
    hub. Raises DupqError with the row of what is no text, such as bytes, or a text that UTF-8 cannot hold.
    """
    for name, value in (("threshold", threshold), ("precision", precision)):
        if value is not None:
            share(value, f"find_duplicates: {name}=")
    asked = given_texts(texts, format, "find_duplicates")
    titles, bodies = asked.titles, asked.bodies
    given = _encoder(encoder, titles)
    reads = None if teacher is None else teacher_at(os.fspath(teacher), "find_duplicates: teacher=")
    near, compared, used, settings = compare(titles, bodies, given, language, k)
    members, representatives = components(near.pairs)
    every = np.arange(len(titles))
    histogram = histogram_of(compared.probabilities)
    cosines = _cosines(reads, titles, bodies or [""] * len(titles), settings.text.code, compared.table)
    chosen = histogram.above(threshold) if precision is None else histogram.choose(precision)
    no_links = np.zeros((0, 2), np.int64)
    found = compared.pairs, compared.probabilities, no_links, chosen["threshold"], SCORED_SIZE, compared.score
    keys, clusters = with_represented((members, representatives), decide(*found))
    every[keys] = clusters
    return Duplicates(
        in_memory("pairs", _pairs_table(near, compared.table, every, asked, cosines)),
        in_memory("clusters", _clusters_table(every, asked)),
        chosen["threshold"],
        chosen["expected_precision"],
        encoder if isinstance(encoder, np.ndarray) else used,
        asked.read,
        asked.not_read,
    )


def _encoder(given: object, titles: list[str]) -> TextEncoder | Encode | None:
    """The encoder that is meant. Raises SettingError for what is none, DupqError where there is none."""
    if isinstance(given, np.ndarray):
        vectors = given
        if len(vectors) != len(titles):
            raise DupqError(
                f"{_MODEL_CALL}an array of {len(vectors)} rows, but {len(titles)} texts; one row each expected"
            )
        return lambda texts: vectors
    if isinstance(given, (str, os.PathLike)):
        place = os.fspath(given)
        is_path = os.path.isabs(place) or place.startswith((".", "~"))  # and no name of a model
        if is_path or storage.is_remote(place) or storage.exists(place):
            return load_encoder(place)
        model = teacher_at(place, _MODEL_CALL)
        return lambda texts: teacher_vectors(model, texts, system.CPU).astype(np.float32)
    if given is None or isinstance(given, TextEncoder) or callable(given):
        return given
    expected = "the address of a saved one, a model's name, a function of texts, or an array of vectors expected"
    raise SettingError(f"find_duplicates: encoder is {type(given).__name__}; {expected}")


def compare(
    titles: list[str], bodies: list[str] | None, given: TextEncoder | Encode | None, language: str, k: int
) -> tuple[NearPairs, Comparison, TextEncoder | Encode, Settings]:
    """The near duplicates among texts, the others compared, the encoder that was used, and settings.

    `bodies` are HTML; `given` is the encoder that is wanted. Titles alone have a prior of their own.
    """
    if not isinstance(given, TextEncoder) and language == "auto":
        language = language_of(pa.array(titles[:_FOR_LANGUAGE], pa.string()))
    settings = _settings(given, bodies is not None, language, k)
    table = _texts(titles, bodies, settings.text)
    words = words_of_rows(NewTexts(titles, bodies).rows(), table, settings.text.language)
    rarity = rarities(document_counts(words.texts), len(table))
    asking = Asking(settings.text.language, rare_words(rarity, len(table), settings.text.language))
    said = _said(table, titles, bodies)
    near = near_pairs(said, settings.near_duplicates, asking)
    every = np.arange(len(table))
    rows = np.flatnonzero(represented(every, *components(near.pairs)) == every)
    alone, prior = None, read_prior()
    if not any(bodies or ()):
        alone = TitlesAlone(asking, list(map(Title, said.titles.to_pylist(), said.signs.to_pylist())))
        prior = read_prior(OF_TITLES)
    if callable(given):
        used: TextEncoder | Encode = given
        read = teacher_texts(titles, bodies or [""] * len(titles), settings.text.code)
        embedded, measure = Embeddings(rows, _vectors(given, read, table)[rows]), Measure()
    else:
        used = given or TextEncoder(_learned(table, settings))
        embedded, measure = Embeddings(rows, *used.reader.encode(table.take(pa.array(rows)))[0]), used.measure
    return near, Comparison(embedded, words, rarity, (measure, k), prior.model, alone), used, settings


def _vectors(encode: Encode, read: list[str], table: pa.Table) -> np.ndarray:
    """What a function makes of texts, as vectors (float16) of length 1; zeros for a text without a word."""
    found = np.asarray(encode(read))
    if found.ndim != 2 or len(found) != len(read) or found.dtype.kind != "f" or not np.isfinite(found).all():
        raise DupqError(
            f"find_duplicates: encoder gave {found.dtype} of shape {found.shape} for {len(read)} texts; a vector of "
            "finite floats for each expected"
        )
    has_words = pc.not_equal(table["text"], "").to_numpy()
    lengths = np.linalg.norm(found.astype(np.float64), axis=1, keepdims=True)
    return np.where(has_words[:, None], found / np.maximum(lengths, 1e-12), 0.0).astype(np.float16)


def _learned(texts: pa.Table, settings: Settings) -> Reader:
    """An encoder for rows of TEXTS; torch is loaded only if it is trained on them."""
    if not settings.title_body.epochs:
        return counted_words(texts, settings)
    require("torch", f"find_duplicates, for bodies in {settings.text.language},")
    from dupq.training.loop import learn

    return learn(texts, settings)


def _cosines(teacher: Teacher | None, titles: list[str], bodies: list[str], code: str, scored: pa.Table) -> np.ndarray:
    """The teacher's cosine (float32) of each scored pair of texts above the floor; NaN for others."""
    found = np.full(len(scored), np.nan, np.float32)
    likely = np.flatnonzero(scored["probability"].to_numpy() >= np.float32(FLOOR))
    if teacher is None or not len(likely):
        return found
    left, right = (scored[side].to_numpy()[likely] for side in ("left", "right"))
    rows = np.unique(np.concatenate([left, right]))
    some, below = ([column[row] for row in rows.tolist()] for column in (titles, bodies))
    vectors = teacher_vectors(teacher, teacher_texts(some, below, code), system.CPU)
    found[likely] = cosines_of(rows, vectors, left, right)
    return found


def _settings(given: TextEncoder | Encode | None, has_bodies: bool, language: str, k: int) -> Settings:
    """Those of the encoder, or of one that is learned on what is there."""
    if isinstance(given, TextEncoder):
        return config.assign(given.reader.settings, [f"neighbours.k={k}"])
    fields = "title+body" if has_bodies else "title"
    own = [f"text.language={language}", f"text.fields={fields}", f"neighbours.k={k}", "word_vectors.minimum_count=1"]
    settings = config.in_language(config.load("dupq", own), language)
    if (
        given is not None or language == "english" or not has_bodies
    ):  # the encoder that ships with dupq needs no training here
        settings = config.assign(settings, ["title_body.epochs=0"])
    return settings


def _texts(titles: list[str], bodies: list[str] | None, settings: TextSettings) -> pa.Table:
    """Rows of TEXTS, by the rows of the texts. Raises DupqError if there is nothing to compare."""
    shown, below = (pa.array(column, pa.string()) for column in (titles, bodies or [""] * len(titles)))
    table = texts_table(pa.array(np.arange(len(titles))), shown, below, settings)
    if not any(table["text"].to_pylist()):
        raise DupqError(f"find_duplicates: none of the {len(titles)} texts has a word")
    return table


def _said(table: pa.Table, titles: list[str], bodies: list[str] | None) -> Said:
    """What the texts say, as `near_pairs` reads it, beside their rows of TEXTS."""
    written = pa.array(titles, pa.string())
    below = pa.nulls(len(titles), pa.string()) if bodies is None else pa.array(bodies, pa.string())
    hashes = content_hashes(written, below)
    return Said(table["title"].combine_chunks(), table["text"].combine_chunks(), signs_of(written), hashes)


def _pairs_table(near: NearPairs, scored: pa.Table, labels: np.ndarray, given: Given, cosines: np.ndarray) -> pa.Table:
    ends = [np.concatenate([near.pairs[:, side], scored[("left", "right")[side]].to_numpy()]) for side in (0, 1)]
    is_near = np.arange(len(ends[0])) < len(near.pairs)
    values = [np.concatenate([near.jaccards, scored[name].to_numpy()]) for name in ("similarity", "probability")]
    sources = np.concatenate([np.where(near.is_exact, "exact", "near_duplicate"), ["encoder"] * len(scored)])
    rows = np.lexsort((ends[1], ends[0], -values[1]))
    left, right = (side[rows] for side in ends)
    columns = [
        *(given.ids.take(pa.array(side)) for side in (left, right)),
        *(pa.array([given.titles[row] for row in side.tolist()], pa.string()) for side in (left, right)),
        pa.array(sources[rows].tolist(), pa.string()),
        pa.array(values[0][rows].astype(np.float32), mask=~is_near[rows]),
        pa.array(values[0][rows].astype(np.float32), mask=is_near[rows]),
        pa.array(values[1][rows].astype(np.float32)),
        pa.array(labels[left] == labels[right]),
        pa.array(np.concatenate([np.full(len(near.pairs), np.nan, np.float32), cosines])[rows], from_pandas=True),
    ]
    return pa.table(columns, schema=_schemas(given.ids.type)[0])


def _clusters_table(labels: np.ndarray, given: Given) -> pa.Table:
    _, places, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    columns = [pa.array(np.arange(len(labels))), given.ids, pa.array(given.titles, pa.string())]
    columns += [given.ids.take(pa.array(labels)), pa.array(sizes[places])]
    return pa.table(columns, schema=_schemas(given.ids.type)[1])
