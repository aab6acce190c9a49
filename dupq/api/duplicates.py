"""Find the duplicates in a list of texts, without files and without Ray: `dupq.find_duplicates`.

    texts      ──near_pairs──▶     verified pairs; one text represents its near duplicates
    texts      ──learn──▶          the encoder that ships with dupq, with the rarities of these texts' words
    embeddings ──search_tile──▶    the k nearest of each, exactly
    neighbours ──scored_table──▶   pairs with a probability, by the priors that ship with dupq
    pairs      ──reread──▶         their probability once a sentence model has read both texts, if one is installed
    pairs      ──decide──▶         clusters

These are the steps of a run, on arrays. A run also learns from the known duplicates of its archive.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage, system
from dupq.api.encoders import TextEncoder, load_encoder
from dupq.api.inputs import read_texts, share, whole
from dupq.api.result import Duplicates, Encode, clusters_table, pairs_table
from dupq.clusters import reranking
from dupq.clusters.calibration import OF_TITLES, features_of, read_prior
from dupq.clusters.components import components, represented, with_represented
from dupq.clusters.decision import (
    PairScorer,
    compared,
    decide,
    histogram_of,
    ranked,
    scored_table,
    undirected,
    unlisted,
)
from dupq.clusters.evidence import title_context, title_cosines
from dupq.encoders.saved import Reader
from dupq.encoders.sentence_models import Reranker, default_reranker, reranker_at, reread_texts, sentence_vectors
from dupq.errors import DupqError, SettingError
from dupq.judging.prompt import Asked, asked
from dupq.judging.trust import LEAST_SURE, fit_trust, to_ask, with_answers_of
from dupq.near_duplicates.pairing import near_pairs
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.tiles import Search, block, search_tile
from dupq.runs.scoring import new_questions, words_of_rows
from dupq.runs.views import in_memory
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import Language
from dupq.system import require
from dupq.text import tokens
from dupq.text.keys import RowsByKey, are_pairs_among, distinct, pairs_in, sample_by_hash
from dupq.text.languages import language_of
from dupq.text.questions import content_hashes, document_counts, rare_words, rarities, texts_table
from dupq.text.title_intent import TitleComparer
from dupq.text.written import written_titles
from dupq.training.word_vectors import untrained_reader

_TITLES_FOR_LANGUAGE = 10_000
_JUDGED = 500  # pairs that a judge reads
_NO_RERANKER = "none"


def find_duplicates(
    texts: Any,
    *,
    encoder: "str | os.PathLike[str] | TextEncoder | Encode | np.ndarray | None" = None,
    threshold: float = 0.5,
    precision: float | None = None,
    k: int = 10,
    language: Language = "auto",
    reranker: str | os.PathLike[str] | None = "auto",
    judge: "Callable[[Asked, Asked], float] | None" = None,
    format: "tokens.Markup" = "auto",
) -> Duplicates:
    """Find the pairs and clusters of duplicates among some thousand texts.

    `texts` is a list or a column (pandas, Polars, Arrow) of titles, or a table: pandas, Polars (also lazy), Arrow, a
    TableView of a run, a dictionary of columns, or a list of records. A table has the column `title` (or `question`,
    `subject`, `headline`) and optionally `body_html`, `body`, `text`, `description` or `content`. `format` says whether
    bodies are "html" or "plain"; with "auto" they are HTML if the column's name ends in html, or if more than half of
    the first 1,000 have a closing tag, as on the command line. A missing text (None, NaN) is an empty one. Texts are
    named by the column `id` or `question_id`, by the index of a pandas table or column, or else by their rows. Other
    columns are not read; the result says which.

    The texts are encoded by the encoder that ships with dupq, weighted by how rare their words are here, or by
    `encoder`: the address of a saved one, which then fixes how texts are read; the name or folder of a
    sentence-transformers model; a function that returns a vector for each text; or the vectors themselves (float, shape
    (n, d)), which are compared by their cosines. For other languages than English an encoder is trained on the texts.
    `language` is for the stems of words, unless an encoder is named; "auto" is the language of most titles.

    Pairs that the encoder finds may join if their probability is at least `threshold`, or with `precision` at least the
    threshold at which that precision is expected. Copies and near duplicates join whatever the threshold is. Each text
    is compared with its `k` nearest. A `reranker` reads the texts of likely pairs, all if there are up to 2,000, and
    decides with the other evidence: a sentence-transformers model, given as its folder, a package that has one, or a
    name on the Hugging Face hub. "auto" is the model that `encoder` names, else all-MiniLM-L6-v2, if it is installed
    and the texts are English; None is without. A `judge`, a function that returns 0 to 100 for two texts (`title` and
    `text`), reads the 500 likeliest pairs, and its answers count as evidence. Raises DupqError with the row of a value
    that is not a text, or that UTF-8 cannot hold.
    """
    for name, value in (("threshold", threshold), ("precision", precision)):
        if value is not None:
            share(value, f"find_duplicates: {name}=")
    k = whole(k, "find_duplicates: k=")
    if format not in get_args(tokens.Markup):
        raise SettingError(f"find_duplicates: format={format!r}: {', '.join(get_args(tokens.Markup))} expected")
    inputs = read_texts(texts, format, "find_duplicates")
    titles, bodies = inputs.titles, inputs.bodies
    chosen_encoder = _encoder(encoder, len(titles))
    comparison = compare(titles, bodies, chosen_encoder, language, k, _reranker(reranker, chosen_encoder))
    scored = scored_table(comparison.evidence, comparison.title_context, comparison.scale, comparison.read)
    least_sure = 0.5
    if judge is not None:
        scored, is_used = _judged(scored, judge, titles, bodies, comparison.code)
        least_sure = LEAST_SURE if is_used else least_sure
    probabilities = scored["probability"].to_numpy()
    histogram = histogram_of(probabilities)
    chosen = histogram.above(threshold) if precision is None else histogram.choose(precision, least_sure)
    no_links = np.zeros((0, 2), np.int64)
    solved = decide(pairs_in(scored), probabilities, no_links, chosen["threshold"], comparison.score)
    keys, clusters = with_represented(components(pairs_in(comparison.near)), solved)
    labels = np.arange(len(titles))
    labels[keys] = clusters
    return Duplicates(
        in_memory("pairs", pairs_table(comparison.near, scored, labels, inputs)),
        in_memory("clusters", clusters_table(labels, inputs)),
        chosen["threshold"],
        chosen["expected_precision"],
        encoder if isinstance(encoder, np.ndarray) else comparison.encoder,
        inputs.read,
        inputs.not_read,
        None if comparison.reranker is None else comparison.reranker.name,
    )


def _judged(
    scored: pa.Table, judge: Callable[[Asked, Asked], float], titles: list[str], bodies: list[str] | None, code: str
) -> tuple[pa.Table, bool]:
    """Return SCORED after a judge's answers about the likeliest pairs, and whether they are used."""
    keys, p = pairs_in(scored), scored["probability"].to_numpy()
    rows = to_ask(keys, p, np.zeros(len(p), bool), _JUDGED)
    read = {row: asked(titles[row], bodies[row] if bodies else "", code) for row in np.unique(keys[rows]).tolist()}
    answers = [judge(read[left], read[right]) for left, right in keys[rows].tolist()]
    for answer in answers:
        if not isinstance(answer, Real) or not 0 <= float(answer) <= 100:
            raise DupqError(f"find_duplicates: judge= returned {answer!r}; 0 to 100 expected")
    same = np.array(answers, np.float64)
    none = np.zeros(0)
    trust = fit_trust(same, p[rows], np.full(len(rows), np.nan), none, none)
    return with_answers_of(scored, rows, trust.added(same)), not trust.reason


def _encoder(given: object, texts: int) -> TextEncoder | Encode | None:
    """Return the encoder that `given` names or is.

    Raises SettingError for another type, DupqError if it is missing or an array without a row for each of `texts`.
    """
    if isinstance(given, np.ndarray):
        if given.shape[:1] != (texts,):
            raise DupqError(
                f"find_duplicates: encoder=an array of shape {given.shape}, but {texts} texts; one row each expected"
            )
        return lambda _: given
    if isinstance(given, (str, os.PathLike)):
        uri = os.fspath(given)
        is_path = os.path.isabs(uri) or uri.startswith((".", "~"))  # not the name of a model
        if is_path or storage.is_remote(uri) or storage.exists(uri):
            return load_encoder(uri)
        return ModelEncoder(reranker_at(uri, "find_duplicates: encoder="))
    if given is None or isinstance(given, TextEncoder) or callable(given):
        return given
    expected = "the address of a saved one, a model's name, a function of texts, or an array of vectors expected"
    raise SettingError(f"find_duplicates: encoder is {type(given).__name__}; {expected}")


@dataclass(frozen=True)
class ModelEncoder:
    """A sentence-transformers model as an encoder of texts."""

    model: Reranker

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Return the model's vector of each text."""
        return sentence_vectors(self.model, texts, system.CPU).astype(np.float32)


def _reranker(given: str | os.PathLike[str] | None, encoder: object) -> Reranker | None:
    """Return the reranker that `given` names. Raises DupqError if it is missing."""
    if not isinstance(given, (str, os.PathLike, type(None))):
        raise SettingError(f"find_duplicates: reranker= is {type(given).__name__}; a folder, a name or None expected")
    name = None if given is None else os.fspath(given)
    if name in (None, _NO_RERANKER):
        return None
    if name != "auto":
        return reranker_at(str(name), "find_duplicates: reranker=")
    return encoder.model if isinstance(encoder, ModelEncoder) else default_reranker()


@dataclass(frozen=True)
class Comparison:
    """Texts compared with one another. The key of a text is its row."""

    near: pa.Table  # near duplicates (VERIFIED)
    evidence: pa.Table  # of the pairs that the encoder found: COMPARED
    title_context: pa.Table  # TITLE_CONTEXT of their texts
    scale: PairScorer
    score: Callable[[np.ndarray], np.ndarray]  # of pairs that the encoder did not find
    encoder: TextEncoder | Encode  # the encoder that was used
    code: str  # the setting text.code
    reranker: Reranker | None  # the one that has read texts
    read: Embeddings | None  # its vectors, by ascending key
    density: reranking.Density | None


def compare(
    titles: list[str],
    bodies: list[str] | None,
    encoder: TextEncoder | Encode | None,
    language: str,
    k: int,
    reranker: Reranker | None = None,
) -> Comparison:
    """Find the near duplicates among texts, and the `k` nearest of each of the others, with their evidence.

    `bodies` are HTML; without an `encoder` it is dupq's own, or one trained on the texts. Titles without bodies have a
    prior of their own. A `reranker` that does not know the language reads nothing.
    """
    if not isinstance(encoder, TextEncoder) and language == "auto":
        language = language_of(pa.array(titles[:_TITLES_FOR_LANGUAGE], pa.string()))
    settings = _settings(encoder, bodies is not None, language, k)
    questions = new_questions(titles, bodies)
    table = texts_table(pa.array(np.arange(len(titles))), questions["title"], questions["body_html"], settings.text)
    if not pc.any(pc.not_equal(table["text"], "")).as_py():
        raise DupqError(f"find_duplicates: none of the {len(titles)} texts has a word")
    words = words_of_rows(questions, table, settings.text.language)
    rarity = rarities(document_counts(words.texts), len(table))
    comparer = TitleComparer(settings.text.language, rare_words(rarity, len(table), settings.text.language))
    written = written_titles(questions["title"], settings.text.language)
    hashes = content_hashes(questions["title"], questions["body_html"])
    near = near_pairs(table, written, hashes, settings.near_duplicates, comparer)
    every = np.arange(len(table))
    rows = np.flatnonzero(represented(every, *components(pairs_in(near))) == every)
    are_titles = table["title"].equals(table["text"])  # no body has a word, or the encoder reads none
    prior = read_prior(OF_TITLES if are_titles else "")
    texts = reread_texts(titles, bodies or [""] * len(titles), settings.text.code)
    if callable(encoder):
        used: TextEncoder | Encode = encoder
        embedded, measure = Embeddings(rows, _vectors(encoder, texts, table)[rows]), Measure()
    else:
        used = encoder or TextEncoder(_learned(table, settings))
        embedded, measure = Embeddings(rows, *used.reader.encode(table.take(pa.array(rows)))), used.measure
    directed = _nearest(embedded, measure, k)
    queries, others = (directed[name].to_numpy() for name in ("query", "neighbour"))
    listed = title_context(queries, title_cosines(words.titles, queries, others, rarity))
    best = directed["similarity"].to_numpy()[directed["rank"].to_numpy() == 1]
    scale = PairScorer(prior.model, np.sort(best.astype(np.float64)), k)

    def evidence_of(pairs: pa.Table) -> pa.Table:
        return compared(pairs, RowsByKey(every), words, rarity)

    def unlisted_evidence(pairs: np.ndarray) -> pa.Table:
        return evidence_of(unlisted(pairs, embedded, measure))

    evidence, read, density = evidence_of(undirected(directed)), None, None
    if reranker is not None and not reranker.reads(settings.text.language):
        reranker = None
    if reranker is not None and len(rows):
        p = scored_table(evidence, listed, scale)["probability"].to_numpy()
        read, more, density = _read(reranker, texts, rows, pairs_in(evidence), p)
        evidence = pa.concat_tables([evidence, unlisted_evidence(more)])
        cosines = reranking.cosines_of(read, pairs_in(evidence))
        features = features_of(evidence, listed, scale.reference, k)
        is_read = np.isfinite(cosines)
        known = features[is_read], cosines[is_read].astype(np.float64)
        scale = scale._replace(reread=reranking.reread_of(prior, *known, density, reranker.is_default))

    def score(pairs: np.ndarray) -> np.ndarray:
        return scored_table(unlisted_evidence(pairs), listed, scale, read)["probability"].to_numpy()

    return Comparison(near, evidence, listed, scale, score, used, settings.text.code, reranker, read, density)


def _nearest(embedded: Embeddings, measure: Measure, k: int) -> pa.Table:
    """Return the `k` nearest of each text (NEIGHBOURS)."""
    whole = block(embedded, measure)
    return ranked(whole.keys, search_tile(whole, whole, Search(measure, k))[0], measure)


def _read(
    reranker: Reranker, texts: list[str], rows: np.ndarray, pairs: np.ndarray, p: np.ndarray
) -> tuple[Embeddings, np.ndarray, reranking.Density]:
    """Return a reranker's vectors of the texts that it reads, as in a run, the pairs that only it has found, and the
    density of the texts.

    `rows` are those that may be read, ascending; `pairs` (int64, (m, 2)) have the probabilities `p`.
    """
    is_whole = len(rows) <= reranking.WHOLE
    sampled = rows if is_whole else sample_by_hash(rows, reranking.SAMPLE)
    if not is_whole:
        likely = np.argsort(-p, kind="stable")[: max(reranking.PAIRS, len(rows) // reranking.QUESTIONS_PER_PAIR)]
        rows = distinct(np.append(pairs[likely], sampled))
    read = Embeddings(rows, sentence_vectors(reranker, [texts[row] for row in rows], system.CPU))
    density = reranking.density_of(read.take(np.isin(rows, sampled)).vectors)
    if not is_whole:
        return read, np.zeros((0, 2), np.int64), density
    found = pairs_in(undirected(_nearest(read, Measure(), reranking.NEAREST)))
    return read, found[~are_pairs_among(np.unique(pairs, axis=0), found)], density


def _vectors(encode: Encode, texts: list[str], table: pa.Table) -> np.ndarray:
    """Return a function's vectors of texts (float16, shape (n, d)) with length 1; zeros for a text without a word."""
    given = encode(texts)
    try:
        vectors = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # a tensor with a gradient, or in bfloat16; a ragged list
        remedy = "; make it one: .detach().float().cpu().numpy()" if hasattr(given, "detach") else ""
        raise DupqError(f"find_duplicates: encoder gave {type(given).__name__}, no array ({error}){remedy}") from error
    if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype.kind != "f" or not np.isfinite(vectors).all():
        raise DupqError(
            f"find_duplicates: encoder gave {vectors.dtype} of shape {vectors.shape} for {len(texts)} texts; a vector "
            "of finite floats for each expected"
        )
    has_words = pc.not_equal(table["text"], "").to_numpy()
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.where(has_words[:, None], vectors / np.maximum(lengths, 1e-12), 0.0).astype(np.float16)


def _learned(texts: pa.Table, settings: Settings) -> Reader:
    """Return an encoder for rows of TEXTS. Loads torch only if it is trained on them."""
    if not settings.title_body.epochs:
        return untrained_reader(texts, settings)
    require("torch", f"find_duplicates, for bodies in {settings.text.language},")
    from dupq.training.loop import train_on_texts

    return train_on_texts(texts, settings)


def _settings(encoder: TextEncoder | Encode | None, has_bodies: bool, language: str, k: int) -> Settings:
    """Return the settings of the encoder, or of one that is learned on the texts."""
    if isinstance(encoder, TextEncoder):
        return config.assign(encoder.reader.settings, [f"neighbours.k={k}"])
    fields = "title+body" if has_bodies else "title"
    own = [f"text.language={language}", f"text.fields={fields}", f"neighbours.k={k}", "word_vectors.minimum_count=1"]
    settings = config.in_language(config.load("dupq", own), language)
    needs_training = encoder is None and language != "english" and has_bodies
    return settings if needs_training else config.assign(settings, ["title_body.epochs=0"])
