"""texts → verified pairs and representatives: exact copies, MinHash-LSH, exact Jaccard, components.

Five steps, each of Ray tasks that exchange files:

    signatures       a task a shard    text hash, signature and band keys
    exact copies     one task          a key and a hash a question
    candidates       a task a band     a key, a hash and a band key a question
    verification     a task a part     the texts of the questions in its candidate pairs
    representatives  one task          the verified pairs

Exact copies are found first and only their first question goes on, so that a text that stands a thousand times
makes no bucket of a thousand.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.components import components
from dupq.config import NearDuplicateSettings
from dupq.errors import DupqError
from dupq.near_duplicates.bands import band_keys, bucket_pairs
from dupq.near_duplicates.shingles import shingle, shingle_sets, text_hashes
from dupq.near_duplicates.signatures import signatures
from dupq.near_duplicates.verification import jaccard
from dupq.stages.shards import partition_of
from dupq.stages.tasks import Counts, Report, run_tasks, skip_or
from dupq.tables import KEY_PAIRS, REPRESENTATIVES, TEXTS, VERIFIED, band_name
from dupq.tables import signatures as signatures_schema
from dupq.text.keys import Sites


@dataclass(frozen=True)
class NearFiles:
    """Where the steps leave their tables."""

    texts: str
    signatures: str
    exact: str  # one file
    candidates: str
    verified: str
    representatives: str  # one file


def make_signatures(files: NearFiles, settings: NearDuplicateSettings) -> Report:
    """texts → signatures, shard by shard."""
    calls = [
        (text.uri, settings, storage.join(files.signatures, text.relative))
        for text in storage.list_files(files.texts, ".parquet")
    ]
    return run_tasks("signatures", _signatures_of_shard, calls)


def find_near_duplicates(files: NearFiles, sites: Sites, settings: NearDuplicateSettings, parts: int) -> Report:
    """signatures → verified pairs and representatives. Afterwards every pair has Jaccard ≥ the threshold."""
    report = run_tasks("exact copies", _exact_copies, [(files, sites.names)], cpus=1)
    rows_in = report.rows_in
    report.add(run_tasks("candidates", _candidates_of_band, [(files, settings, b) for b in range(settings.bands)]))
    verified = run_tasks("verification", _verify_part, [(files, settings, (part, parts)) for part in range(parts)])
    report.add(verified)
    report.add(run_tasks("representatives", _representatives, [(files,)]))
    report.rows_in, report.rows_out = rows_in, verified.rows_out
    return report


def _signatures_of_shard(texts_uri: str, settings: NearDuplicateSettings, output: str) -> Counts:
    def make() -> Counts:
        texts = storage.read_table(texts_uri, TEXTS, ["key", "text"]).combine_chunks()
        column = texts["text"].chunk(0) if len(texts) else pa.array([], pa.string())
        values = signatures(shingle(column, settings.shingle_size), settings.permutations, settings.seed)
        keys = band_keys(values, settings.bands, settings.rows)
        flat = pa.array(values.ravel(), pa.uint32())
        columns = {
            "key": texts["key"],
            "text_hash": pa.array(text_hashes(column), pa.binary(16)),
            "signature": pa.FixedSizeListArray.from_arrays(flat, settings.permutations),
            **{band_name(band): pa.array(keys[:, band]) for band in range(settings.bands)},
        }
        schema = signatures_schema(settings.permutations, settings.bands)
        storage.write_table(output, pa.table(columns), schema, {"rows_in": len(texts)})
        return {"rows_in": len(texts), "rows_out": len(texts)}

    return skip_or(output, make)


def _read_all(folder: str, columns: list[str]) -> pa.Table:
    files = storage.list_files(folder, ".parquet")
    return pa.concat_tables([storage.read_table(file.uri, None, columns) for file in files])


def _exact_copies(files: NearFiles, sites: list[str]) -> Counts:
    def make() -> Counts:
        table = _read_all(files.signatures, ["key", "text_hash"])
        _check_unique(table["key"].to_numpy(), Sites(sites))
        filled = table.filter(pc.is_valid(table["text_hash"])).sort_by(
            [("text_hash", "ascending"), ("key", "ascending")]
        )
        keys = filled["key"].to_numpy()
        hashes = filled["text_hash"].combine_chunks().dictionary_encode()
        codes = (hashes.chunk(0) if isinstance(hashes, pa.ChunkedArray) else hashes).indices.to_numpy()
        first = np.r_[True, codes[1:] != codes[:-1]] if len(codes) else np.zeros(0, bool)
        originals = keys[np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))] if len(keys) else keys
        pairs = pa.table([pa.array(originals[~first]), pa.array(keys[~first])], schema=KEY_PAIRS)
        counts = {"rows_in": len(table), "exact copies": len(pairs)}
        storage.write_table(files.exact, pairs, KEY_PAIRS, counts)
        return {**counts, "rows_out": len(pairs)}

    return skip_or(files.exact, make)


def _check_unique(keys: np.ndarray, sites: Sites) -> None:
    ordered = np.sort(keys)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        raise DupqError(
            f"questions: {sites.label(int(repeated[0]))} stands more than once ({len(repeated)} rows too many in "
            "all); ingest the dump anew into an empty folder"
        )


def _candidates_of_band(files: NearFiles, settings: NearDuplicateSettings, band: int) -> Counts:
    output = storage.join(files.candidates, f"{band_name(band)}.parquet")

    def make() -> Counts:
        table = _read_all(files.signatures, ["key", "text_hash", band_name(band)])
        table = table.filter(pc.is_valid(table["text_hash"]))
        keys = table["key"].to_numpy()
        copies = storage.read_table(files.exact, KEY_PAIRS, ["right"])["right"].to_numpy()
        distinct = ~np.isin(keys, copies)
        pairs, oversized = bucket_pairs(
            table[band_name(band)].to_numpy()[distinct], keys[distinct], settings.bucket_limit
        )
        counts = {"rows_in": len(keys), "cap: buckets over near_duplicates.bucket_limit": oversized}
        columns = [pa.array(pairs[:, 0]), pa.array(pairs[:, 1])]
        storage.write_table(output, pa.table(columns, schema=KEY_PAIRS), KEY_PAIRS, counts)
        return {**counts, "rows_out": len(pairs)}

    return skip_or(output, make)


def _verify_part(files: NearFiles, settings: NearDuplicateSettings, part: tuple[int, int]) -> Counts:
    index, parts = part
    output = storage.join(files.verified, f"part-{index:05d}.parquet")

    def make() -> Counts:
        candidates = _distinct_candidates(files.candidates, index, parts)
        keys, texts = _texts_of(files.texts, np.unique(candidates))
        sets = shingle_sets(texts, settings.shingle_size)
        rows = np.searchsorted(keys, candidates)
        coefficients = jaccard(sets, rows[:, 0], rows[:, 1]).astype(np.float32)
        kept = coefficients >= np.float32(settings.threshold)
        exact = storage.read_table(files.exact, KEY_PAIRS)
        pairs = np.stack([exact["left"].to_numpy(), exact["right"].to_numpy()], axis=1)
        pairs = pairs[partition_of(pairs[:, 0], parts) == index]
        table = pa.concat_tables(
            [
                _verified(pairs, "exact", np.ones(len(pairs), np.float32)),
                _verified(candidates[kept], "near_duplicate", coefficients[kept]),
            ]
        ).sort_by([("left", "ascending"), ("right", "ascending")])
        counts = {"rows_in": len(candidates), "candidates under the threshold": int((~kept).sum())}
        storage.write_table(output, table, VERIFIED, counts)
        return {**counts, "rows_out": len(table)}

    return skip_or(output, make)


def _distinct_candidates(folder: str, index: int, parts: int) -> np.ndarray:
    found = [np.zeros((0, 2), np.int64)]
    for file in storage.list_files(folder, ".parquet"):
        table = storage.read_table(file.uri, KEY_PAIRS)
        pairs = np.stack([table["left"].to_numpy(), table["right"].to_numpy()], axis=1)
        found.append(pairs[partition_of(pairs[:, 0], parts) == index])
    return np.unique(np.concatenate(found), axis=0)


def _texts_of(folder: str, wanted: np.ndarray) -> tuple[np.ndarray, pa.StringArray]:
    """The texts of the keys `wanted` (sorted), in the order of the keys."""
    pieces = [pa.table([pa.array([], pa.int64()), pa.array([], pa.string())], names=["key", "text"])]
    for file in storage.list_files(folder, ".parquet"):
        table = storage.read_table(file.uri, TEXTS, ["key", "text"])
        pieces.append(table.filter(pa.array(np.isin(table["key"].to_numpy(), wanted))).cast(pieces[0].schema))
    found = pa.concat_tables(pieces).sort_by("key").combine_chunks()
    texts = found["text"].chunk(0) if len(found) else pa.array([], pa.string())
    return found["key"].to_numpy(), texts


def _verified(pairs: np.ndarray, source: str, coefficients: np.ndarray) -> pa.Table:
    columns = [pa.array(pairs[:, 0]), pa.array(pairs[:, 1]), pa.array([source] * len(pairs), pa.string())]
    return pa.table([*columns, pa.array(coefficients, pa.float32())], schema=VERIFIED)


def _representatives(files: NearFiles) -> Counts:
    def make() -> Counts:
        table = _read_all(files.verified, ["left", "right"])
        edges = np.stack([table["left"].to_numpy(), table["right"].to_numpy()], axis=1)
        members, smallest = components(edges)
        columns = pa.table([pa.array(members), pa.array(smallest)], schema=REPRESENTATIVES)
        counts = {"rows_in": len(edges)}
        storage.write_table(files.representatives, columns, REPRESENTATIVES, counts)
        return {**counts, "rows_out": len(members)}

    return skip_or(files.representatives, make)
