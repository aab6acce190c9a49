"""The schema of every table on disk: Parquet, zstd, checked when written and when read.

`site` is a hive partition folder (`site=cs.stackexchange.com/`) of the archive's tables, and a column of a run's
tables. A question's key is `(site, question_id)`; in pairs the left key is the smaller one. Times are UTC in
milliseconds. Columns are required unless a comment says when they are null.
"""

from typing import Any

import pyarrow as pa

from dupq import kinds
from dupq.errors import DupqError
from dupq.kinds import Schema, columns, open_schema

EMBEDDING_TYPE = pa.float16()


def _required(name: str, data_type: pa.DataType) -> pa.Field:
    return pa.field(name, data_type, nullable=False)


def _schema(*fields: pa.Field, **required: pa.DataType) -> Any:
    """Return the schema of `fields`, and of `required` columns after them."""
    return pa.schema([*fields, *(_required(name, data_type) for name, data_type in required.items())])


_TIME = pa.timestamp("ms", tz="UTC")

QUESTIONS: Schema[kinds.Question] = _schema(
    _required("question_id", pa.int64()),  # its id on the site
    _required("title", pa.string()),  # plain text; "" where the dump has none
    _required("body_html", pa.string()),  # HTML as its author wrote it; "" where the dump has none
    _required("tags", pa.list_(pa.string())),  # may be empty
    pa.field("creation_date", _TIME),  # when it was asked; null: the dump has none
    pa.field("score", pa.int32()),  # votes for it minus votes against it; null: the dump has none
    pa.field("view_count", pa.int64()),  # how often it was read; null: the dump has none
    pa.field("answer_count", pa.int32()),  # null: the dump has none
    pa.field("accepted_answer_id", pa.int64()),  # the answer that its author accepted; null: none
    pa.field("closed_date", _TIME),  # when it was closed; null: open
    pa.field("owner", pa.string()),  # the author's user id, or the name of a deleted author
    pa.field("content_license", pa.string()),  # such as CC BY-SA 4.0; null: the dump names none
    pa.field("own_id", pa.string()),  # its id as the user's table has it; null: question_id is that
    pa.field("url", pa.string()),  # its https address, from the user's table; null: the table has none
    pa.field("scope", pa.list_(pa.string())),  # values of the column that --scope named; may be empty
)

ANSWERS: Schema[kinds.Answer] = _schema(
    _required("answer_id", pa.int64()),  # its id on the site
    _required("question_id", pa.int64()),  # what it answers
    _required("body_html", pa.string()),  # HTML as its author wrote it; "" where the dump has none
    pa.field("score", pa.int32()),  # votes for it minus votes against it; null: the dump has none
    _required("is_accepted", pa.bool_()),  # by the author of the question, if that is in the dump
)

LINKS: Schema[kinds.Link] = _schema(
    _required("question_id", pa.int64()),  # the question with the link; of a duplicate the closed one
    _required("related_id", pa.int64()),  # the question it links to; of a duplicate the original
    _required("link_type", pa.string()),  # duplicate, linked, or type-N for one the dumps do not document
    pa.field("creation_date", _TIME),  # of the link; null: the dump has none
)

IDS: Schema[kinds.Id] = _schema(
    _required("question_id", pa.int64()),  # the question's number in all other tables
    _required(
        "id", pa.string()
    ),  # its id in the user's table, or OWNER/REPO#ISSUE; without ids its number, or FILE:ROW
    _required("source", pa.string()),  # the table's file, and the member inside an archive
    _required("position", pa.int64()),  # the row there, from 1; in CSV the line
)

REJECTS: Schema[kinds.Reject] = _schema(
    _required("source", pa.string()),  # the file, and the member inside an archive
    _required("position", pa.int64()),  # byte in the unpacked XML; row of a table, or line of a CSV file
    _required("reason", pa.string()),  # why it was rejected
    _required("excerpt", pa.string()),  # the first 200 characters of the row
)

PAIRS: Schema[kinds.Pair] = _schema(
    _required("site_left", pa.string()),  # of the question with the smaller key
    _required("question_id_left", pa.int64()),  # its id
    _required("site_right", pa.string()),  # of the other question
    _required("question_id_right", pa.int64()),  # its id
    _required("source", pa.string()),  # exact, near_duplicate, encoder; known_link or verdict: none of these
    pa.field("jaccard", pa.float32()),  # Jaccard coefficient of the shingle sets; null for source encoder
    pa.field("similarity", pa.float32()),  # score of the embeddings by the encoder; null unless source is encoder
    # that they are duplicates, calibrated for this archive; 1 for exact, known_link and verdict, jaccard for
    # near_duplicate
    _required("probability", pa.float32()),
    pa.field("rank", pa.int32()),  # 1 = nearest, the better of both directions; null beyond k or not encoder
    pa.field("rank_left", pa.int32()),  # of the right question among the left one's nearest; null: not among them
    pa.field("rank_right", pa.int32()),  # of the left question among the right one's nearest; null: not among them
    pa.field("title_overlap", pa.float32()),  # cosine of the titles' stems, weighted by rarity; encoder only
    pa.field("text_overlap", pa.float32()),  # the same of title and body; encoder only
    # Jaccard coefficient of the tags; encoder only; null also if neither question has tags
    pa.field("tag_overlap", pa.float32()),
    pa.field("reranker", pa.float32()),  # cosine by the reranker; null unless it has read both questions
    _required("joined", pa.bool_()),  # whether both are in one cluster
    pa.field("known_link", pa.bool_()),  # whether people linked them; null: the run had no links, or ignored them
    # with --earlier which was asked later: left or right; null: without it, at the same time, or a date is missing
    pa.field("newer", pa.string()),
)

# The likeliest pairs of a run that are in different clusters and that people have neither linked nor judged.
WORKLIST: Schema[kinds.Work] = _schema(
    _required("rank", pa.int64()),  # 1: the likeliest
    _required("site_left", pa.string()),  # of the question with the smaller key
    _required("question_id_left", pa.int64()),  # its id
    _required("site_right", pa.string()),  # of the other question
    _required("question_id_right", pa.int64()),  # its id
    pa.field("title_left", pa.string()),  # its author's text: escape it; null: no longer in the archive
    pa.field("title_right", pa.string()),  # of the other question
    pa.field("own_id_left", pa.string()),  # its id as the user's table has it; null: question_id is that
    pa.field("own_id_right", pa.string()),  # of the other question
    pa.field("link_left", pa.string()),  # its address on the web; null: it has no url, and its site is not a host name
    pa.field("link_right", pa.string()),  # of the other question
    # that they are duplicates, given that nobody linked them: lower than in pairs, which ignores links
    _required("probability", pa.float32()),
    _required("expected_right", pa.float64()),  # the sum of the probabilities of this pair and those before it
    _required("evidence", pa.string()),  # in words
    pa.field("newer", pa.string()),  # as in pairs
    _required("verdict", pa.string()),  # empty; in worklist.tsv people fill in same, different or unsure
)

CLUSTERS: Schema[kinds.Clustered] = _schema(
    _required("site", pa.string()),  # of the question
    _required("question_id", pa.int64()),  # its id
    _required("cluster_id", pa.string()),  # kept from run to run with --previous: dupq/clusters/identity.py
    _required("canonical_site", pa.string()),  # of the question that the others of the cluster duplicate
    _required("canonical_id", pa.int64()),  # its id
    _required("is_canonical", pa.bool_()),  # whether this row is that question
    # the criterion that chose the canonical question (dupq/clusters/identity.py); null: alone
    pa.field("canonical_reason", pa.string()),
    _required("cluster_size", pa.int64()),  # questions of the cluster; 1: alone
    _required("threshold", pa.float32()),  # the probability from which a pair may join
)

# What became of clusters since the earlier run: new, gone, grown, shrunk, changed, merged or split.
CHANGED_CLUSTERS: Schema[kinds.ChangedCluster] = _schema(
    _required("kind", pa.string()),  # new, gone, grown, shrunk, changed, merged or split
    pa.field("cluster_id", pa.string()),  # in this run; null: gone
    pa.field("previous_cluster_id", pa.string()),  # in the earlier run; null: new
    _required("size", pa.int64()),  # questions in this run
    _required("previous_size", pa.int64()),  # questions in the earlier run
    _required("shared", pa.int64()),  # questions in both
)

CLUSTER_STATS: Schema[kinds.ClusterStats] = _schema(
    _required("cluster_id", pa.string()),  # as in clusters
    _required("size", pa.int64()),  # questions
    _required("edges", pa.int64()),  # joined pairs
    _required("density", pa.float32()),  # edges / (size * (size - 1) / 2)
    _required("weakest_link", pa.float32()),  # the lowest probability of its edges
    _required("bridges", pa.int64()),  # edges whose loss would split the cluster
    _required("mean_probability", pa.float32()),  # of its edges
)


def embeddings(dimensions: int, is_lexical: bool) -> Schema[kinds.Embedded]:
    """Return the schema of a run's `embeddings/`: a float16 vector of `dimensions` for each encoded question.

    With `is_lexical` there is a bag of words too: the ids of the words and their weights.
    """
    bag = [
        _required("words", pa.list_(pa.int32())),  # ids of its words, ascending; only if the encoder has a lexical part
        _required("word_weights", pa.list_(EMBEDDING_TYPE)),  # of these words, with length 1
    ]
    return _schema(
        _required("site", pa.string()),  # of the question
        _required("question_id", pa.int64()),  # its id
        _required("embedding", pa.list_(EMBEDDING_TYPE, dimensions)),  # of length 1 if scored by cosine
        *(bag if is_lexical else []),
        # a hash of vector and bag, so that a later run sees changes; 0: empty
        _required("fingerprint", pa.int64()),
    )


# The columns that all tables of embeddings have.
EMBEDDED: Schema[kinds.Embedded] = open_schema(columns(embeddings(1, False), "site", "question_id", "fingerprint"))

# Tables in a run's work folder. Keys are packed (dupq/text/keys.py).

# Title and text are tokens joined by single spaces; the text is title and body.
TEXTS: Schema[kinds.Text] = _schema(key=pa.int64(), title=pa.string(), text=pa.string())

# Terms are hashes of stems, ascending, and how often each occurs; marks are hashes too (dupq/clusters/evidence.py).
_LISTS = _schema(
    title_terms=pa.list_(pa.int32()),
    title_counts=pa.list_(pa.uint8()),
    text_terms=pa.list_(pa.int32()),
    text_counts=pa.list_(pa.uint8()),
    marks=pa.list_(pa.int32()),
)
QUESTION_TEXTS: Schema[kinds.QuestionText] = _schema(*TEXTS, *_LISTS)  # the marks are without the asker's

# Hashes of questions' contents (dupq/text/questions.py): a later run reuses what has not changed.
CONTENT_HASHES: Schema[kinds.ContentHash] = _schema(key=pa.int64(), high=pa.int64(), low=pa.int64())

CONTENTS: Schema[kinds.Content] = _schema(
    *CONTENT_HASHES,
    _required("written", pa.string()),  # of the title: dupq/text/written.py
    _required("tags", pa.list_(pa.int32())),  # hashes
    pa.field("asker", pa.int32()),  # a mark
)


def keyed_vectors(dimensions: int) -> Schema[kinds.KeyedVector]:
    """Return the schema of a reranker's vectors of questions by key, which have length 1."""
    return _schema(key=pa.int64(), vector=pa.list_(EMBEDDING_TYPE, dimensions))


KEYED_VECTORS: Schema[kinds.KeyedVector] = open_schema(columns(keyed_vectors(1), "key"))


# A row for each question, by its packed key.
KEYS: Schema[kinds.Key] = _schema(key=pa.int64())

KEY_PAIRS: Schema[kinds.KeyPair] = _schema(left=pa.int64(), right=pa.int64())

# Pairs of representatives that join at any probability, and why: known_link or verdict.
JOINED_PAIRS: Schema[kinds.JoinedPair] = _schema(*KEY_PAIRS, source=pa.string())

VERIFIED: Schema[kinds.Verified] = _schema(*KEY_PAIRS, source=pa.string(), jaccard=pa.float32())

# Each question in a verified pair, with the question that represents it in the encoder's stages.
REPRESENTATIVES: Schema[kinds.Representative] = _schema(key=pa.int64(), representative=pa.int64())

# What says with which questions one may be compared: its entries, a value and a time each (dupq/neighbours/scopes.py).
SCOPES: Schema[kinds.Scoped] = _schema(key=pa.int64(), values=pa.list_(pa.int64()), times=pa.list_(pa.int64()))

# The same of each question in a verified pair, with the question that represents it.
GROUPED: Schema[kinds.Grouped] = _schema(*SCOPES, representative=pa.int64())

# When questions were asked.
DATES: Schema[kinds.Dated] = _schema(*KEYS, QUESTIONS.field("creation_date"))

NEIGHBOURS: Schema[kinds.Neighbour] = _schema(
    *_schema(query=pa.int64(), neighbour=pa.int64(), similarity=pa.float32()),
    pa.field("rank", pa.int32()),  # null: above the floor, but not among the k nearest of `query`
    _required("lift", pa.float32()),  # clusters/evidence.py; 0 without a rank
)

# Candidate pairs, with each side's rank among the other's neighbours: clusters/evidence.py, Listing.
CANDIDATES: Schema[kinds.Candidate] = _schema(
    *_schema(*KEY_PAIRS, similarity=pa.float32()),
    *_schema(rank_left=pa.int32(), lift_left=pa.float32(), rank_right=pa.int32(), lift_right=pa.float32()),
)

# Candidate pairs with what their texts share, all float32: clusters/evidence.py, Shared. Tags are NaN without tags.
_SHARED = (
    *("title_cosine", "title_least", "text_cosine", "text_least", "both_ways", "tags", "title_swap", "other_numbers"),
    *("other_date", "other_asking", "other_negation", "other_order", "other_words", "same_asking", "other_formulas"),
    *("same_asker", "cites"),
)
COMPARED: Schema[kinds.Compared] = _schema(*CANDIDATES, **dict.fromkeys(_SHARED, pa.float32()))

# How alike a question's title is to its neighbours' titles: clusters/evidence.py, `title_context`.
TITLE_CONTEXT: Schema[kinds.TitleContext] = _schema(key=pa.int64(), cosines=pa.int64(), listed=pa.int64())

# The least probability of the pairs of a site whose questions a reranker reads.
CUTS: Schema[kinds.Cut] = _schema(site=pa.int32(), probability=pa.float32())

# Candidate pairs with their evidence and probability.
SCORED: Schema[kinds.Scored] = _schema(
    *_schema(*KEY_PAIRS, similarity=pa.float32()),
    pa.field("rank_left", pa.int32()),  # null: the left question does not list the right one
    pa.field("rank_right", pa.int32()),
    *_schema(title_overlap=pa.float32(), text_overlap=pa.float32()),
    pa.field("tag_overlap", pa.float32()),  # null: neither has tags
    _required("probability", pa.float32()),
    pa.field("reranker", pa.float32()),  # cosine by the reranker; null unless it has read both questions
)

# A judge's answers about pairs (judging/prompt.py, Answer). The probability is that before it was asked; the kind is
# likely, verdict (people judged the pair), or a control pair's: copy or different.
JUDGE_ANSWERS: Schema[kinds.Answered] = _schema(
    *_schema(*KEY_PAIRS, probability=pa.float32(), kind=pa.string()),
    pa.field("same", pa.float32()),
    *_schema(differs=pa.string(), changes_answer=pa.bool_(), covers=pa.string(), odd=pa.bool_()),
    *_schema(problem=pa.string(), model=pa.string()),
)

# The same for people: stages/judge.py.
JUDGEMENTS: Schema[kinds.Judgement] = _schema(
    _required("site_left", pa.string()),  # of the question with the smaller key
    _required("question_id_left", pa.int64()),  # its id
    _required("site_right", pa.string()),  # of the other question; of a copy the same one
    _required("question_id_right", pa.int64()),  # its id
    _required("probability_before", pa.float32()),  # that they are duplicates, before the judge was asked
    _required("probability", pa.float32()),  # and afterwards
    _required("kind", pa.string()),  # likely; verdict: people judged it; copy and different: control pairs
    pa.field("same", pa.float32()),  # 0 to 100, how sure the judge is; null: it gave no usable answer
    _required("differs", pa.string()),  # the fact in which the questions differ, in the judge's words
    _required("changes_answer", pa.bool_()),  # whether an answer changes with it
    _required("covers", pa.string()),  # both, left answers right, right answers left, none
    _required("odd", pa.bool_()),  # a text speaks to the judge, or cannot be judged: the answer is not used
    _required("problem", pa.string()),  # why there is no usable answer
    _required("model", pa.string()),  # that answered, by its own name
)

# The nearest neighbours of each question, the best first by their exact scores, ties by key.
NEAREST: Schema[kinds.Nearest] = _schema(key=pa.int64(), neighbours=pa.list_(pa.int64()), scores=pa.list_(pa.float64()))

# The blocks of the all-pairs search: the rows of embedding files that make up each, in order, and their site.
BLOCKS: Schema[kinds.BlockRows] = _schema(
    block=pa.int32(), site=pa.string(), file=pa.string(), start=pa.int64(), stop=pa.int64()
)

# Rows of a tile's left block, and their number of pairs above the floor; twice that for a block with itself.
ROW_RANGES: Schema[kinds.RowRange] = _schema(start=pa.int64(), stop=pa.int64(), pairs=pa.int64())

# The questions of components, the group that a component is solved in, and whether all its pairs are scored.
# A component is named by its smallest key.
NODES: Schema[kinds.Node] = _schema(key=pa.int64(), component=pa.int64(), is_scored=pa.bool_(), group=pa.int64())

# The cluster of each question of a component, as the cluster's smallest key.
LABELS: Schema[kinds.Label] = _schema(key=pa.int64(), cluster=pa.int64())

# The questions of clusters of two and more.
MEMBERS: Schema[kinds.Member] = _schema(
    *LABELS,
    _required("id", pa.int64()),  # dupq/clusters/identity.py
    _required("canonical", pa.int64()),
    _required("reason", pa.int8()),  # index in dupq.clusters.identity.REASONS
    _required("size", pa.int64()),
)


def signatures(permutations: int) -> Schema[kinds.Signature]:
    """Return the schema of MinHash signatures, of the questions with a text that are not copies of another."""
    signature = pa.list_(pa.uint32(), permutations)
    return _schema(site=pa.string(), question_id=pa.int64(), signature=signature)


# The columns that all tables of signatures have.
SIGNATURES: Schema[kinds.Signature] = open_schema(columns(signatures(1), "site", "question_id"))


# All terms of a question. Its marks have the asker's.
TERMS: Schema[kinds.Terms] = _schema(_required("key", pa.int64()), *_LISTS, CONTENTS.field("tags"))

# Representatives with known duplicates: the set (its smallest key), and its part: train, development or test.
KNOWN_SETS: Schema[kinds.KnownSet] = _schema(key=pa.int64(), duplicates=pa.int64(), part=pa.string())

# The questions that a run is calibrated on.
SAMPLE: Schema[kinds.Sampled] = _schema(key=pa.int64(), is_linked=pa.bool_())

# The sampled questions' pairs; `features` in the order of dupq.clusters.calibration.FEATURES.
CALIBRATION_PAIRS: Schema[kinds.CalibrationPair] = _schema(
    *map(PAIRS.field, ("site_left", "question_id_left", "site_right", "question_id_right")),
    _required("similarity", pa.float32()),
    _required("is_linked", pa.bool_()),  # a known duplicate of the development part
    _required("is_judged", pa.bool_()),  # people gave their verdict
    _required("label", pa.bool_()),  # linked, or judged to be the same
    _required("pairs", pa.float64()),  # number of pairs of the archive that this one represents
    _required("weight", pa.float64()),  # in the likelihood
    _required("log_rate", pa.float64()),  # ln of the sampling rate of linked pairs over the rate of others
    _required("probability", pa.float64()),
    _required("features", pa.list_(pa.float64(), 22)),
)

# A sample of pairs to be judged: dupq/evaluation/sampling.py.
REVIEW: Schema[kinds.ReviewPair] = _schema(
    *_schema(*KEY_PAIRS, stratum=pa.int64(), joined=pa.bool_()),
    *_schema(pairs=pa.int64(), drawn=pa.int64()),  # of the run, in the stratum
    _required("probability", pa.float64()),  # mean of the stratum
    _required("hash", pa.uint64()),
)

# The number of questions that have a term.
TERM_COUNTS: Schema[kinds.TermCount] = _schema(term=pa.int32(), questions=pa.int64())

# The weight of each term: the rarer, the higher. A row per bucket of the term hash.
RARITIES: Schema[kinds.Rarity] = _schema(rarity=pa.float32())

# Tables that tasks of near_duplicates write for one another, as Arrow files (dupq/job/table.py).

# A 128-bit hash, in two halves, of each text that is not empty; with scopes one for each of its entries.
TEXT_HASHES: Schema[kinds.TextHash] = _schema(high=pa.uint64(), low=pa.uint64(), key=pa.int64(), time=pa.int64())

# The key of a band of a text, and the key of its next band, by which the texts of a bucket are ordered.
BAND_KEYS: Schema[kinds.BandKey] = _schema(bucket=pa.uint64(), order=pa.uint64(), key=pa.int64())

SHINGLE_SETS: Schema[kinds.ShingleSet] = _schema(
    *KEYS, shingles=pa.large_list(pa.uint64()), title=pa.string(), written=pa.string()
)

# A shingle of a compared text, and a hash of the text's title.
TITLED_SHINGLES: Schema[kinds.TitledShingle] = _schema(shingle=pa.uint64(), title=pa.uint64())

SHINGLES: Schema[kinds.Shingle] = _schema(shingle=pa.uint64())


def conform(table: pa.Table, schema: pa.Schema, place: str) -> pa.Table:
    """Return `table` with exactly the columns of `schema`, in its order and types.

    Raises DupqError that names `place` and the column if one is missing, of a wrong type, or null where a value is
    required.
    """
    columns = []
    for field in schema:
        count = table.column_names.count(field.name)
        if count != 1:
            trouble = f"appears {count} times" if count else f"is missing; it has {', '.join(table.column_names)}"
            raise DupqError(f"{place}: column '{field.name}' {trouble}")
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DupqError(
                    f"{place}: column '{field.name}' is {column.type}, not {field.type} ({error})"
                ) from error
        if not field.nullable and column.null_count:
            raise DupqError(f"{place}: column '{field.name}' has {column.null_count} empty values; it must have none")
        columns.append(column)
    return pa.table(columns, schema=schema)


def with_nulls(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table that was read, with the columns of `schema` that are not required and that it lacks."""
    for field in schema:
        if field.nullable and field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table
