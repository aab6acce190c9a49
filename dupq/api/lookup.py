"""Looking up a new text among the questions of a run: `Run.similar`."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.api.encoders import TextEncoder
from dupq.api.inputs import check_count
from dupq.near_duplicates.datasketch_lsh import run_settings, run_signatures
from dupq.near_duplicates.shingles import compared
from dupq.near_duplicates.signatures import text_signatures
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.search import top_k
from dupq.runs.embeddings import embeddings_of
from dupq.runs.reader import Run
from dupq.runs.table_view import TableView, in_memory
from dupq.text.keys import Sites
from dupq.text.questions import question_text

_NEW = -1  # the key of a text that is no question of the archive
_SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),  # encoder or minhash
        pa.field("rank", pa.int64(), nullable=False),  # 1 = most alike
        pa.field("site", pa.string(), nullable=False),
        pa.field("question_id", pa.int64(), nullable=False),
        pa.field("title", pa.string()),  # null: no longer in the archive
        pa.field("similarity", pa.float32()),  # score by the encoder; null for minhash
        pa.field("jaccard", pa.float32()),  # estimated by the signatures; null for encoder
    ]
)


class _Found(NamedTuple):
    source: str
    site: str
    question_id: int
    value: float


def similar(run: Run, encoder: TextEncoder, text: tuple[str, str], k: int) -> TableView:
    """The questions most like a text (title, body as HTML). See Run.similar."""
    check_count(k, "similar: k=")
    found = [*_by_encoder(run, encoder, text, k), *_by_minhash(run, text, encoder, k)]
    titles = run.titles((row.site, row.question_id) for row in found)
    ranks: dict[str, int] = {}
    rows = []
    for row in found:
        ranks[row.source] = ranks.get(row.source, 0) + 1
        question = titles.get((row.site, row.question_id))
        rows.append(
            {
                "source": row.source,
                "rank": ranks[row.source],
                "site": row.site,
                "question_id": row.question_id,
                "title": question.title if question else None,
                "similarity" if row.source == "encoder" else "jaccard": row.value,
            }
        )
    return in_memory(f"{run.uri}, similar questions", pa.Table.from_pylist(rows, _SCHEMA))


def _by_encoder(run: Run, encoder: TextEncoder, text: tuple[str, str], k: int) -> Iterator[_Found]:
    sites = Sites(sorted(run.metrics["sites"]))
    query = Embeddings(np.array([_NEW]), *encoder.encode_whole([text[0]], [text[1]]))
    blocks = (embeddings_of(table, sites, run.embeddings.place) for table in run.embeddings.files())
    nearest = top_k(query, blocks, k, encoder.measure)
    names, ids = sites.unpack(nearest.neighbours)
    for name, number, score in zip(names, ids.tolist(), nearest.similarities.tolist(), strict=True):
        yield _Found("encoder", name, number, score)


def _by_minhash(run: Run, text: tuple[str, str], encoder: TextEncoder, k: int) -> Iterator[_Found]:
    """Those whose signatures agree with that of the text in most places, and in one at least; ties by key."""
    if not storage.list_files(storage.join(run.uri, "work", "signatures"), ".parquet"):
        return
    title, whole = (pa.array([tokens], pa.string()) for tokens in question_text(*text, encoder.reader.settings.text))
    if not whole[0].as_py():
        return
    own = text_signatures(compared(title, whole), run_settings(run.uri))[0]
    best: list[tuple[float, str, int]] = []
    for signed in run_signatures(run.uri):
        shares = (signed.signatures == own).mean(axis=1)
        rows = np.flatnonzero(shares > 0)
        named = ((signed.labels[row].rpartition("/"), shares[row]) for row in rows.tolist())
        best += [(-float(share), site, int(number)) for (site, _, number), share in named]
        best = sorted(best)[:k]
    for share, site, number in best:
        yield _Found("minhash", site, number, -share)
