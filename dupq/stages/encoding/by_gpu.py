"""Few shards through a GPU: tasks on CPUs write token ids, and a process per GPU reads them and writes embeddings.

Threads of that process would not make token ids beside each other: what they take of Arrow's dictionaries they take one
after the other.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import pyarrow as pa

from dupq import storage
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, finished, skip_or
from dupq.recording import Written, note, recording
from dupq.stages.encoding import rows
from dupq.stages.encoding.shard import Place, Work, embed, network_of, read_texts, tokenise, write_embeddings

_AT_ONCE = 4  # shards that a process reads, encodes and writes


def encode_by_gpus(work: Work, places: Sequence[Place], folder: str, gpus: int) -> Report:
    """Encode shards, whose token ids are meanwhile in `folder`."""
    names = [place.texts for place in places]
    uris = [storage.join(folder, f"{storage.name(name)}-{number}.arrow") for number, name in enumerate(names)]
    shards = list(zip(places, uris, strict=True))
    tokenised = run_tasks("tokenise", tokenise_shard, [(work, *shard) for shard in shards], names=names)
    shares = [shards[gpu::gpus] for gpu in range(min(gpus, len(shards)))]
    whose = [f"{share[0][0].texts} and {len(share) - 1} more" for share in shares]
    report = run_tasks("encode", encode_shards, [(work, share) for share in shares], gpus=gpus, names=whose)
    report.peak_memory_mb = max(report.peak_memory_mb, tokenised.peak_memory_mb)
    storage.delete_folder(folder)
    return report


def tokenise_shard(work: Work, place: Place, uri: str) -> Counts:
    """Write the token ids of a shard, unless its embeddings are there."""

    def make() -> Counts:
        row = rows.row_of_tokens(place, tokenise(work, place, read_texts(work, place)), 0.0)
        exchange.write_parts(uri, iter(row.to_batches()), row.schema)
        return {}

    return {} if finished(place.output) else skip_or(uri, make)


def encode_shards(work: Work, shards: Sequence[tuple[Place, str]]) -> Counts:
    """Encode shards from their token ids: threads read and write some while one is encoded.

    Memory of the host: the token ids and embeddings of four shards, and the encoder.
    """
    saved, one_at_a_time = cache(partial(network_of, work)), threading.Lock()

    def encode(shard: tuple[Place, str]) -> tuple[Counts, dict[str, Written]]:
        place, uri = shard

        def make() -> Counts:
            tokens = rows.tokens_in(pa.Table.from_batches(exchange.read_all(uri)))[1]
            with one_at_a_time:
                encoded = embed(saved(), work, tokens)
            return write_embeddings(work, place, tokens, encoded)

        with recording() as written:  # by this thread
            return skip_or(place.output, make), written

    total: Counts = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for counts, written in pool.map(encode, shards):
            note(written)
            total = {name: total.get(name, 0) + counts.get(name, 0) for name in {**total, **counts}}
    return total
