"""The schemas of the papers' Parquet files."""

import pyarrow as pa

# The examples of an experiment (data/example_files.py): pairs of a part, and its queries.
EXAMPLE_PAIRS = pa.schema(
    [
        pa.field("part", pa.string(), nullable=False),  # train, development or test
        pa.field("left", pa.int64(), nullable=False),
        pa.field("right", pa.int64(), nullable=False),
        pa.field("label", pa.float32(), nullable=False),  # 1 duplicate, 0 not
    ]
)

EXAMPLE_QUERIES = pa.schema(
    [
        pa.field("part", pa.string(), nullable=False),  # development or test
        pa.field("key", pa.int64(), nullable=False),
        pa.field("duplicates", pa.list_(pa.int64()), nullable=False),  # keys, sorted
    ]
)

PAPER_RESULTS = pa.schema(  # a figure of a paper's table a row (docs/papers.md)
    [
        pa.field("table", pa.string(), nullable=False),  # its name, as in --table
        pa.field("data", pa.string(), nullable=False),  # the data set
        pa.field("system", pa.string(), nullable=False),  # what was measured
        pa.field("measure", pa.string(), nullable=False),  # such as MAP@100
        pa.field("ours", pa.float64()),  # from 0 to 1; null: not computed here
        pa.field("low", pa.float64()),  # lower end of its 95 % interval
        pa.field("high", pa.float64()),  # upper end
        pa.field("paper_data", pa.string()),  # the paper's data set; null: it printed no such figure
        pa.field("paper", pa.float64()),  # its figure, from 0 to 1
        pa.field("difference", pa.float64()),  # ours less the paper's
        pa.field("training_pairs", pa.int64()),  # that the system learned from
        pa.field("questions", pa.int64()),  # that it was measured on
        pa.field("seconds", pa.float64()),  # that training and measuring took
    ]
)
