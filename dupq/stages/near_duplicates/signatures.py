"""texts, contents → exact copies, and the band keys of all other texts.

    text hashes   a task a bundle     128 bits of what a question says as it is stored, spread by hash
    exact copies  a task a hash part  its hashes, sorted; a star of pairs a content
    signatures    a task a bundle     MinHash signatures of the texts that are no copies; their band keys, spread by key

Exact copies come first, so that a text with a thousand copies makes no bucket of a thousand.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.near_duplicates.band_choice import bands_of
from dupq.near_duplicates.bands import band_keys
from dupq.near_duplicates.exact import Hashed, copies
from dupq.near_duplicates.pairing import next_band
from dupq.near_duplicates.shingles import compared
from dupq.near_duplicates.signatures import text_signatures
from dupq.runs.layout import NearFiles
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.shards import partition_of
from dupq.stages.near_duplicates.bundles import Bundle, Cuts, bundles_of, cuts_of
from dupq.stages.texts import check_distinct
from dupq.tables import BAND_KEYS, CONTENT_HASHES, CONTENTS, KEY_PAIRS, KEYS, TEXT_HASHES, TEXTS, signatures
from dupq.text.keys import Sites, are_among

_TEXTS_AT_ONCE = 8_192


def make_signatures(files: NearFiles, sites: Sites, settings: NearDuplicateSettings, parts: int) -> Report:
    """texts → exact copies and band keys. `settings` with bands and rows chosen."""
    bundles = bundles_of(files.texts)
    cuts = cuts_of(bundles, parts)
    names = [bundle.name for bundle in bundles]
    report = run_tasks("text hashes", _hash_bundle, [(files, bundle, cuts) for bundle in bundles], names=names)
    report.add(
        run_tasks(
            "exact copies", _copies_of_part, [(files, sites.names, part, cuts) for part in range(cuts.hash_parts)]
        )
    )
    calls = [(files, sites.names, bundle, settings, cuts) for bundle in bundles]
    report.add(run_tasks("signatures", _sign_bundle, calls, names=names))
    return report


def _hash_bundle(files: NearFiles, bundle: Bundle, cuts: Cuts) -> Counts:
    output = files.step("hashes", bundle.number)

    def make() -> Counts:
        pieces = [(keys, keys[pc.binary_length(texts).to_numpy() > 0]) for keys, texts in text_pieces(bundle)]
        keys, filled = (np.concatenate(column) for column in zip(*pieces, strict=True))
        found = contents_of(files, bundle, CONTENT_HASHES, filled)
        columns = [*(found[half].to_numpy().view(np.uint64) for half in ("high", "low")), found["key"].to_numpy()]
        counts = {"rows_in": len(keys), "rows_out": len(keys)}
        everyone = exchange.split([keys], KEYS, partition_of(keys, cuts.hash_parts), cuts.hash_parts)
        exchange.write_parts(files.step("keys", bundle.number), everyone, KEYS)
        parts = partition_of(columns[0], cuts.hash_parts)
        hashes = exchange.split(columns, TEXT_HASHES, parts, cuts.hash_parts)
        exchange.write_parts(output, hashes, TEXT_HASHES)
        return counts

    return skip_or(output, make)


def text_pieces(bundle: Bundle) -> Iterator[tuple[np.ndarray, pa.StringArray]]:
    """The keys and texts of a bundle as they are compared, some thousand at a time."""
    yield np.zeros(0, np.int64), pa.array([], pa.string())  # for a bundle without questions
    for uri in bundle.texts:
        for batch in storage.read_pieces(uri, TEXTS, TEXTS.names, _TEXTS_AT_ONCE):
            yield batch["key"].to_numpy(), compared(batch["title"], batch["text"])


def contents_of(files: NearFiles, bundle: Bundle, schema: pa.Schema, wanted: np.ndarray) -> pa.Table:
    """Columns of CONTENTS, some or all, of the questions `wanted` of a bundle, by their keys."""
    found = [schema.empty_table()]
    for uri in bundle.texts:
        table = storage.read_table(storage.join(files.contents, storage.name(uri)), CONTENTS, schema.names)
        found.append(table.filter(pa.array(are_among(np.sort(wanted), table["key"].to_numpy()))))
    return pa.concat_tables(found).sort_by("key").combine_chunks()


def _copies_of_part(files: NearFiles, sites: list[str], part: int, cuts: Cuts) -> Counts:
    output = files.step("exact", part)

    def make() -> Counts:
        _check_unique(files, Sites(sites), part, cuts)
        batches = exchange.read_part(files.steps("hashes", cuts.bundles), part)
        homes = np.repeat(np.arange(cuts.bundles), [len(batch) for batch in batches])
        texts = Hashed(*exchange.columns_of(batches, TEXT_HASHES))
        places, originals = copies(texts)
        left, right = texts.keys[originals], texts.keys[places]
        counts = {"rows_in": len(homes), "rows_out": len(places), "exact copies": len(places)}
        by_home = exchange.split([right], KEYS, homes[places], cuts.bundles)
        exchange.write_parts(files.step("copies", part), by_home, KEYS)
        by_slice = exchange.split([left, right], KEY_PAIRS, partition_of(left, cuts.slices), cuts.slices)
        exchange.write_parts(output, by_slice, KEY_PAIRS)
        return counts

    return skip_or(output, make)


def _check_unique(files: NearFiles, sites: Sites, part: int, cuts: Cuts) -> None:
    batches = exchange.read_part(files.steps("keys", cuts.bundles), part)
    check_distinct(np.sort(exchange.columns_of(batches, KEYS)[0]), sites)


def _sign_bundle(
    files: NearFiles, sites: list[str], bundle: Bundle, settings: NearDuplicateSettings, cuts: Cuts
) -> Counts:
    output = files.step("bands", bundle.number)

    def make() -> Counts:
        batches = exchange.read_part(files.steps("copies", cuts.hash_parts), bundle.number)
        copied = exchange.columns_of(batches, KEYS)[0]
        sizes, members, bands = [], [], []

        def signed() -> Iterator[pa.Table]:
            for keys, texts in text_pieces(bundle):
                kept = ~np.isin(keys, copied) & (pc.binary_length(texts).to_numpy() > 0)
                values = text_signatures(texts.filter(pa.array(kept)), settings)
                sizes.append(len(keys))
                members.append(keys[kept])
                bands.append(np.ascontiguousarray(band_keys(values, *bands_of(settings)).T))
                yield _signature_table(members[-1], values, Sites(sites))

        filled = (table for table in signed() if len(table))
        uri = storage.join(files.signatures, f"part-{bundle.number:05d}.parquet")
        storage.write_row_groups(uri, filled, signatures(settings.permutations))
        keys, columns = np.concatenate(members), np.concatenate(bands, axis=1)
        counts = {"rows_in": sum(sizes), "rows_out": len(keys)}
        exchange.write_parts(output, _band_batches(columns, keys, cuts.band_parts), BAND_KEYS)
        return counts

    return skip_or(output, make)


def _signature_table(keys: np.ndarray, values: np.ndarray, sites: Sites) -> pa.Table:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    return pa.table([*sites.columns(keys), lists], schema=signatures(values.shape[1]))


def _band_batches(bands: np.ndarray, keys: np.ndarray, parts: int) -> Iterator[pa.RecordBatch]:
    """The keys of each band (uint64, shape (bands, n)), part by part; beside each the key of the next band."""
    for band, buckets in enumerate(bands):
        orders = bands[next_band(band, len(bands))]
        yield from exchange.split([buckets, orders, keys], BAND_KEYS, partition_of(buckets, parts), parts)
