"""The schema of every table on disk. Parquet, zstd, checked when written and when read.

`site` is a hive partition folder (`site=cs.stackexchange.com/`) of the archive's tables, and a column of a
run's tables. A question's key is `(site, question_id)`; in pairs the left key is the smaller one.
Times are UTC in milliseconds. Columns are required unless a comment says when they are null.
"""

import pyarrow as pa

from dupq.errors import DupqError

EMBEDDING_TYPE = pa.float16()


def _required(name: str, data_type: pa.DataType) -> pa.Field:
    return pa.field(name, data_type, nullable=False)


_TIME = pa.timestamp("ms", tz="UTC")

QUESTIONS = pa.schema(
    [
        _required("question_id", pa.int64()),
        _required("title", pa.string()),  # "" where the dump has none
        _required("body_html", pa.string()),  # "" where the dump has none
        _required("tags", pa.list_(pa.string())),
        pa.field("creation_date", _TIME),  # null: the dump has none
        pa.field("score", pa.int32()),
        pa.field("view_count", pa.int64()),
        pa.field("answer_count", pa.int32()),
        pa.field("accepted_answer_id", pa.int64()),  # null: no accepted answer
        pa.field("closed_date", _TIME),  # null: open
        pa.field("owner", pa.string()),  # the author's user id, or the name of a deleted author
        pa.field("content_license", pa.string()),  # null: the dump names none
    ]
)

ANSWERS = pa.schema(
    [
        _required("answer_id", pa.int64()),
        _required("question_id", pa.int64()),
        _required("body_html", pa.string()),  # "" where the dump has none
        pa.field("score", pa.int32()),
        _required("is_accepted", pa.bool_()),  # by the author of the question, as far as that is in the dump
    ]
)

LINKS = pa.schema(
    [
        _required("question_id", pa.int64()),
        _required("related_id", pa.int64()),
        _required("link_type", pa.string()),  # duplicate, linked, or type-N for one the dumps do not document
        pa.field("creation_date", _TIME),
    ]
)

REJECTS = pa.schema(
    [
        _required("source", pa.string()),  # the file, and the member inside an archive
        _required("position", pa.int64()),  # byte in the unpacked XML, line in a CSV, row in a Parquet file
        _required("reason", pa.string()),
        _required("excerpt", pa.string()),  # the first 200 characters
    ]
)

PAIRS = pa.schema(
    [
        _required("site_left", pa.string()),
        _required("question_id_left", pa.int64()),
        _required("site_right", pa.string()),
        _required("question_id_right", pa.int64()),
        _required("source", pa.string()),  # exact, near_duplicate or encoder
        pa.field("jaccard", pa.float32()),  # of the shingle sets; null for source encoder
        pa.field("similarity", pa.float32()),  # score of the embeddings by the encoder; null unless source is encoder
        _required("probability", pa.float32()),  # calibrated; 1 for exact, jaccard for near_duplicate
        pa.field("rank", pa.int32()),  # 1 = nearest, the better of both directions; null beyond k or not encoder
        pa.field("known_link", pa.bool_()),  # null: the run was given no links
    ]
)

CLUSTERS = pa.schema(
    [
        _required("site", pa.string()),
        _required("question_id", pa.int64()),
        _required("cluster_id", pa.string()),  # site/question_id of the cluster's smallest key
        _required("canonical_site", pa.string()),
        _required("canonical_id", pa.int64()),
        _required("is_canonical", pa.bool_()),
        _required("cluster_size", pa.int64()),
    ]
)

CLUSTER_STATS = pa.schema(
    [
        _required("cluster_id", pa.string()),
        _required("size", pa.int64()),
        _required("edges", pa.int64()),
        _required("density", pa.float32()),  # edges / (size * (size - 1) / 2)
        _required("weakest_link", pa.float32()),  # the lowest probability of its edges
        _required("bridges", pa.int64()),  # edges whose loss would split the cluster
    ]
)


def embeddings(dimensions: int, is_lexical: bool) -> pa.Schema:
    """The schema of a run's `embeddings/`: one float16 vector of `dimensions` for each encoded question.

    It has length 1 if the encoder is scored by cosine. With `is_lexical` a bag of words stands beside it: the
    ids of its words, ascending, and their weights, of length 1 too. By the fingerprint (a hash of both; 0 for an empty
    text) a later run knows what has changed.
    """
    bag = [_required("words", pa.list_(pa.int32())), _required("word_weights", pa.list_(EMBEDDING_TYPE))]
    return pa.schema(
        [
            _required("site", pa.string()),
            _required("question_id", pa.int64()),
            _required("embedding", pa.list_(EMBEDDING_TYPE, dimensions)),
            *(bag if is_lexical else []),
            _required("fingerprint", pa.int64()),
        ]
    )


# Tables of a run's work folder, by packed key (see dupq/text/keys.py).

TEXTS = pa.schema(
    [
        _required("key", pa.int64()),
        _required("title", pa.string()),  # tokens joined by single spaces
        _required("text", pa.string()),  # title and body, likewise
    ]
)

KEY_PAIRS = pa.schema([_required("left", pa.int64()), _required("right", pa.int64())])

VERIFIED = pa.schema([*KEY_PAIRS, _required("source", pa.string()), _required("jaccard", pa.float32())])

# Every question that is in a verified pair, and the question that stands for it in the encoder's stages.
REPRESENTATIVES = pa.schema([_required("key", pa.int64()), _required("representative", pa.int64())])

NEIGHBOURS = pa.schema(
    [
        _required("query", pa.int64()),
        _required("neighbour", pa.int64()),
        _required("similarity", pa.float32()),
        pa.field("rank", pa.int32()),  # null: over the threshold, but not among the k nearest of `query`
    ]
)

# Pairs over the threshold.
SIMILAR_PAIRS = pa.schema([*KEY_PAIRS, _required("similarity", pa.float32())])

# What an earlier search does not tell: questions to be searched, and questions whose pairs no longer count.
CHANGES = pa.schema([_required("key", pa.int64()), _required("is_asked", pa.bool_()), _required("is_gone", pa.bool_())])

# How many pairs over the threshold a question has lost.
LOST_PAIRS = pa.schema([_required("key", pa.int64()), _required("lost", pa.int64())])

# The nearest neighbours of each question, the best first, ties by key.
NEAREST = pa.schema(
    [
        _required("key", pa.int64()),
        _required("neighbours", pa.list_(pa.int64())),
        _required("scores", pa.list_(pa.float64())),  # what they are ordered by, exactly
        _required("over", pa.int64()),  # how many questions are over the threshold
    ]
)


def centres(dimensions: int) -> pa.Schema:
    """The middle of each list of an inverted file, and the length that vectors are scaled by (neighbours/ivf.py)."""
    return pa.schema([_required("centre", pa.list_(pa.float32(), dimensions)), _required("longest", pa.float64())])


def listed(probes: int) -> pa.Schema:
    """Questions, and the lists that each is searched for in, the nearest first."""
    return pa.schema([_required("key", pa.int64()), _required("lists", pa.list_(pa.int32(), probes))])


EDGES = pa.schema([*KEY_PAIRS, _required("probability", pa.float32())])

# The questions of clusters of two and more.
MEMBERS = pa.schema(
    [
        _required("key", pa.int64()),
        _required("cluster", pa.int64()),  # its smallest key
        _required("canonical", pa.int64()),
        _required("size", pa.int64()),
    ]
)


def signatures(permutations: int) -> pa.Schema:
    """MinHash signatures of the questions that have a text and are no exact copy of another one."""
    return pa.schema(
        [
            _required("site", pa.string()),
            _required("question_id", pa.int64()),
            _required("signature", pa.list_(pa.uint32(), permutations)),
        ]
    )


# What the tasks of near_duplicates hand to one another, as Arrow files (see dupq/stages/exchange.py).

KEYS = pa.schema([_required("key", pa.int64())])

# The 128-bit hash of each text that is not empty, in two halves.
TEXT_HASHES = pa.schema([_required("high", pa.uint64()), _required("low", pa.uint64()), *KEYS])

# The key of one band of a text that copies none, and that of the next band, which orders the texts of a bucket.
BAND_KEYS = pa.schema([_required("bucket", pa.uint64()), _required("order", pa.uint64()), *KEYS])

# A question whose shingle set a slice of the candidate pairs needs.
WANTED = pa.schema([_required("slice", pa.int64()), *KEYS])

SHINGLE_SETS = pa.schema([*KEYS, _required("shingles", pa.large_list(pa.uint64()))])


def conform(table: pa.Table, schema: pa.Schema, place: str) -> pa.Table:
    """`table` with exactly the columns of `schema`, in its order and types.

    Raises DupqError naming `place` and the column when one is missing, of a wrong type, or null where
    values are required.
    """
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            raise DupqError(f"{place}: column '{field.name}' is missing; it has {', '.join(table.column_names)}")
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
