"""exact copies, band keys → verified pairs and representatives: MinHash-LSH, exact Jaccard, components.

    candidates       a task a few band parts  their band keys, spread by key; the candidates of the buckets
    shingle sets     a task a bundle          the texts that are in candidates, for the slices that need them
    boilerplate      a task a slice           the shingles of all of these, spread by hash: which are under many titles
    verification     a task a slice           its candidates (by their left key), their shingle sets and titles
    representatives  one task                 components of the verified pairs, from a spanning forest of each slice;
                                              where verdicts forbid one, it is put together again pair by pair

A pair below the threshold, or whose titles ask something else, is dropped before questions are joined, so that no chain
of candidates makes a cluster. Both questions go on to the encoder then, like any others.
"""

import functools
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.components import components, forest, represented
from dupq.clusters.constraints import joinable
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.near_duplicates.asking import Asking
from dupq.near_duplicates.band_choice import bands_of
from dupq.near_duplicates.boilerplate import boilerplate, most_titles, titled_shingles, without_boilerplate
from dupq.near_duplicates.pairing import CHAIN, Bucketed, bucket_pairs, distinct_pairs
from dupq.near_duplicates.shingles import Shingles, compared, shingle_sets
from dupq.near_duplicates.verification import jaccard
from dupq.runs.keys import pairs_in
from dupq.runs.layout import NearFiles
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.shards import partition_of
from dupq.stages.near_duplicates.bundles import Bundle, Cuts, band_tasks, bundles_of, chunks, cuts_of
from dupq.stages.near_duplicates.signatures import contents_of
from dupq.tables import (
    BAND_KEYS,
    CONTENTS,
    KEY_PAIRS,
    RARITIES,
    REPRESENTATIVES,
    SHINGLE_SETS,
    SHINGLES,
    TEXTS,
    TITLED_SHINGLES,
    VERIFIED,
    WANTED,
)
from dupq.text.keys import are_among, distinct
from dupq.text.terms import rare_words

_TEXTS_AT_ONCE = 8_192
_FILES_AT_ONCE = 16
_NO_PAIRS = np.zeros((0, 2), np.int64)
_PAIRS_AT_ONCE = 100_000  # at once, with the shingle sets of their texts in memory
_COMPARED = "texts compared"
_OVERSIZED = f"cap: buckets over {CHAIN.limit} questions"


def find_near_duplicates(
    files: NearFiles, settings: NearDuplicateSettings, parts: int, language: str, apart: np.ndarray = _NO_PAIRS
) -> Report:
    """Write verified pairs and representatives; `language` is the texts'.

    Every pair has Jaccard ≥ the threshold, and titles that ask the same. No question represents both of a pair that is
    to be kept `apart` (int64 keys, shape (m, 2)).
    """
    bundles = bundles_of(files.texts)
    cuts = cuts_of(bundles, parts)
    tasks = band_tasks(bands_of(settings)[0], cuts)
    report = run_tasks("candidates", _candidates, [(files, task, cuts) for task in enumerate(tasks)])
    sets_of = [(files, settings, bundle, (len(tasks), cuts)) for bundle in bundles]
    names = [bundle.name for bundle in bundles]
    report.add(run_tasks("shingle sets", _sets_of_bundle, sets_of, names=names))
    most = most_titles(report.counts[_COMPARED])
    report.add(run_tasks("boilerplate", _boilerplate, [(files, most, part, cuts) for part in range(cuts.slices)]))
    calls = [(files, settings, language, number, (len(tasks), cuts)) for number in range(cuts.slices)]
    verified = run_tasks("verification", _verify_slice, calls)
    report.add(verified)
    report.add(run_tasks("representatives", _representatives, [(files, cuts.slices, apart)]))
    report.rows_in, report.rows_out = cuts.questions, verified.rows_out
    return report


def verified_part(folder: str, part: int) -> str:
    """The folder of the verified pairs whose left key is in `part`."""
    return storage.join(folder, f"part-{part:05d}")


def verified_in(folder: str, part: int) -> pa.Table:
    """Return the verified pairs (VERIFIED) whose left key is in `part`."""
    files = storage.list_files(verified_part(folder, part), ".parquet")
    return pa.concat_tables([VERIFIED.empty_table(), *(storage.read_table(file.uri, VERIFIED) for file in files)])


def _candidates(files: NearFiles, numbered_task: tuple[int, range], cuts: Cuts) -> Counts:
    number, batches = numbered_task
    output = files.step("candidates", number)

    def make() -> Counts:
        counts = {"rows_in": 0, "rows_out": 0, _OVERSIZED: 0}
        pairs, wanted = [np.zeros((0, 2), np.int64)], [np.zeros((0, 2), np.int64)]
        for batch in batches:
            texts, homes = _band_part(files, batch, cuts)
            indices, oversized = bucket_pairs(texts, CHAIN)
            pairs.append(texts.members[indices])
            wanted.append(_wanted(pairs[-1], homes[indices], cuts.slices))
            counts["rows_in"] += len(homes)
            counts["rows_out"] += len(indices)
            counts[_OVERSIZED] += oversized
        _write_wanted(files.step("wanted", number), np.concatenate(wanted), cuts)
        left, right = distinct_pairs(np.concatenate(pairs)).T
        by_slice = exchange.split([left, right], KEY_PAIRS, partition_of(left, cuts.slices), cuts.slices)
        exchange.write_parts(output, by_slice, KEY_PAIRS)
        return counts

    return skip_or(output, make)


def _band_part(files: NearFiles, batch: int, cuts: Cuts) -> tuple[Bucketed, np.ndarray]:
    """The band keys of one part of one band, and the bundle that each comes from."""
    batches = exchange.read_part(files.steps("bands", cuts.bundles), batch)
    homes = np.repeat(np.arange(cuts.bundles), [len(found) for found in batches])
    return Bucketed(*exchange.columns_of(batches, BAND_KEYS)), homes


def _wanted(pairs: np.ndarray, homes: np.ndarray, slices: int) -> np.ndarray:
    """Which slices need which questions: (bundle of the question * slices + slice, key), each once."""
    by_slice = np.repeat(partition_of(pairs[:, 0], slices), 2)
    return distinct_pairs(np.stack([homes.ravel() * slices + by_slice, pairs.ravel()], axis=1))


def _write_wanted(uri: str, wanted: np.ndarray, cuts: Cuts) -> None:
    where, keys = distinct_pairs(wanted).T
    homes, by_slice = np.divmod(where, cuts.slices)
    exchange.write_parts(uri, exchange.split([by_slice, keys], WANTED, homes, cuts.bundles), WANTED)


def _sets_of_bundle(
    files: NearFiles, settings: NearDuplicateSettings, bundle: Bundle, tasks_and_cuts: tuple[int, Cuts]
) -> Counts:
    tasks, cuts = tasks_and_cuts
    output = files.step("sets", bundle.number)

    def make() -> Counts:
        batches = exchange.read_part(files.steps("wanted", tasks), bundle.number)
        by_slice, wanted = distinct_pairs(np.stack(exchange.columns_of(batches, WANTED), axis=1)).T
        keys, titles, texts = _texts_of(bundle, distinct(wanted))
        signs = contents_of(files, bundle, pa.schema([CONTENTS.field(name) for name in ("key", "signs")]), keys)
        sets = shingle_sets(compared(titles, texts), settings.shingle_size)
        titled = titled_shingles(sets, titles, texts)
        spread = exchange.split([*titled.T], TITLED_SHINGLES, partition_of(titled[:, 0], cuts.slices), cuts.slices)
        exchange.write_parts(files.step("titled", bundle.number), spread, TITLED_SHINGLES)
        columns = [pa.array(keys), pa.LargeListArray.from_arrays(sets.offsets, sets.hashes), titles]
        rows_of = pa.table([*columns, signs["signs"]], schema=SHINGLE_SETS)
        bounds = np.searchsorted(by_slice, np.arange(cuts.slices + 1))
        rows = np.searchsorted(keys, wanted)
        chosen = (rows[bounds[number] : bounds[number + 1]] for number in range(cuts.slices))
        parts = (exchange.one_batch(rows_of.take(pa.array(some))) for some in chosen)
        exchange.write_parts(output, parts, SHINGLE_SETS)
        return {"rows_in": len(wanted), "rows_out": len(wanted), _COMPARED: len(keys)}

    return skip_or(output, make)


def _texts_of(bundle: Bundle, wanted: np.ndarray) -> tuple[np.ndarray, pa.StringArray, pa.StringArray]:
    """The keys `wanted` (sorted; all of this bundle), and their titles and texts."""
    found = [TEXTS.empty_table()]
    for uri in bundle.texts:
        for batch in storage.read_pieces(uri, TEXTS, TEXTS.names, _TEXTS_AT_ONCE):
            inside = are_among(wanted, batch["key"].to_numpy())
            found.append(pa.Table.from_batches([batch.filter(pa.array(inside))]).select(TEXTS.names).cast(TEXTS))
    table = pa.concat_tables(found).sort_by("key").combine_chunks()
    titles, texts = (pa.concat_arrays([pa.array([], pa.string()), *table[name].chunks]) for name in ("title", "text"))
    return table["key"].to_numpy(), titles, texts


def _boilerplate(files: NearFiles, most: int, part: int, cuts: Cuts) -> Counts:
    output = files.step("boilerplate", part)

    def make() -> Counts:
        batches = exchange.read_part(files.steps("titled", cuts.bundles), part)
        found = boilerplate(np.stack(exchange.columns_of(batches, TITLED_SHINGLES), axis=1), most)
        exchange.write_parts(output, iter([pa.record_batch([pa.array(found)], schema=SHINGLES)]), SHINGLES)
        return {"shingles of boilerplate": len(found)}

    return skip_or(output, make)


def _verify_slice(
    files: NearFiles, settings: NearDuplicateSettings, language: str, number: int, tasks_and_cuts: tuple[int, Cuts]
) -> Counts:
    tasks, cuts = tasks_and_cuts
    folder = verified_part(files.verified, number % cuts.parts)
    output = storage.join(folder, f"slice-{number:05d}.parquet")

    def make() -> Counts:
        candidates = distinct_pairs(_pairs(files.steps("candidates", tasks), number))
        asking = Asking(language, _rare_words(files, cuts.questions, language))
        coefficients, asks_same = _compared(files, number, cuts, candidates, settings.threshold, asking)
        alike = coefficients >= settings.threshold
        kept = alike & asks_same
        exact = _pairs(files.steps("exact", cuts.hash_parts), number)
        table = pa.concat_tables(
            [
                _verified(exact, "exact", np.ones(len(exact))),
                _verified(candidates[kept], "near_duplicate", coefficients[kept]),
            ]
        ).sort_by([("left", "ascending"), ("right", "ascending")])
        _write_forest(files.step("forests", number), np.concatenate([exact, candidates[kept]]))
        counts = {
            "rows_in": len(candidates),
            "candidates under the threshold": int((~alike).sum()),
            "near duplicates whose titles ask something else": int((alike & ~asks_same).sum()),
        }
        storage.write_table(output, table, VERIFIED)
        return {**counts, "rows_out": len(table)}

    return skip_or(output, make)


def _pairs(uris: list[str], part: int) -> np.ndarray:
    return np.stack(exchange.columns_of(exchange.read_part(uris, part), KEY_PAIRS), axis=1)


def _rare_words(files: NearFiles, questions: int, language: str) -> Callable[[str], bool]:
    """A test of words, for which the rarities are read once it is first asked."""

    @functools.cache
    def test() -> Callable[[str], bool]:
        return rare_words(storage.read_table(files.rarities, RARITIES)["rarity"].to_numpy(), questions, language)

    return lambda word: test()(word)


def _compared(
    files: NearFiles, number: int, cuts: Cuts, candidates: np.ndarray, threshold: float, asking: Asking
) -> tuple[np.ndarray, np.ndarray]:
    """The exact coefficient of each candidate (sorted); and, if it reaches the threshold, whether both ask the same."""
    common = exchange.columns_of(exchange.read_part(files.steps("boilerplate", cuts.slices), 0), SHINGLES)[0]
    result, asks_same = np.zeros(len(candidates)), np.zeros(len(candidates), bool)
    for rows in chunks(len(candidates), _PAIRS_AT_ONCE):
        some = slice(rows.start, rows.stop)
        found = _sets(files.steps("sets", cuts.bundles), number, distinct(candidates[some]))
        left, right = np.searchsorted(found["key"].to_numpy(), candidates[some]).T
        lists = found["shingles"].combine_chunks()
        sets = Shingles(lists.values.to_numpy(), lists.offsets.to_numpy())
        result[some] = jaccard(without_boilerplate(sets, np.sort(common)), left, right)
        alike = np.flatnonzero(result[some] >= threshold)
        titles, signs = (found[name].combine_chunks() for name in ("title", "signs"))
        asks_same[alike + rows.start] = asking.all_same(titles, signs, left[alike], right[alike])
    return result, asks_same


def _sets(uris: list[str], number: int, wanted: np.ndarray) -> pa.Table:
    """The rows of SHINGLE_SETS of the keys `wanted` (sorted), by their keys."""
    pieces = [SHINGLE_SETS.empty_table()]
    for some in chunks(len(uris), _FILES_AT_ONCE):
        for batch in exchange.read_part(uris[some.start : some.stop], number):
            inside = are_among(wanted, batch["key"].to_numpy())
            found = batch if inside.all() else batch.filter(pa.array(inside))
            pieces.append(pa.Table.from_batches([found.replace_schema_metadata(None)]))
    found = pa.concat_tables(pieces)
    return found.take(pa.array(np.argsort(found["key"].to_numpy()))).combine_chunks()


def _verified(pairs: np.ndarray, source: str, coefficients: np.ndarray) -> pa.Table:
    columns = [pa.array(pairs[:, 0]), pa.array(pairs[:, 1]), pa.array([source] * len(pairs), pa.string())]
    return pa.table([*columns, pa.array(coefficients.astype(np.float32))], schema=VERIFIED)


def _write_forest(uri: str, edges: np.ndarray) -> None:
    columns = [pa.array(column) for column in forest(edges).T]
    exchange.write_parts(uri, iter([pa.record_batch(columns, schema=KEY_PAIRS)]), KEY_PAIRS)


def _representatives(files: NearFiles, slices: int, apart: np.ndarray) -> Counts:
    def make() -> Counts:
        edges = _pairs(files.steps("forests", slices), 0)
        members, smallest = components(edges)
        owners = represented(apart, members, smallest)
        torn = np.isin(smallest, owners[owners[:, 0] == owners[:, 1], 0])
        if torn.any():
            rest = edges[~are_among(members[torn], edges[:, 0])]
            members, smallest = components(np.concatenate([rest, _joinable(files, members[torn], apart)]))
        columns = pa.table([pa.array(members), pa.array(smallest)], schema=REPRESENTATIVES)
        storage.write_table(files.representatives, columns, REPRESENTATIVES)
        return {"rows_in": len(edges), "rows_out": len(members)}

    return skip_or(files.representatives, make)


def _joinable(files: NearFiles, keys: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """The verified pairs of the sorted `keys` that join them, those most alike first, with no pair `apart` joined."""
    tables = [VERIFIED.empty_table()]
    for file in storage.list_files(files.verified, ".parquet"):
        table = storage.read_table(file.uri, VERIFIED)
        tables.append(table.filter(pa.array(are_among(keys, table["left"].to_numpy()))))
    order = [("jaccard", "descending"), ("left", "ascending"), ("right", "ascending")]
    pairs = pairs_in(pa.concat_tables(tables).sort_by(order))
    return pairs[joinable(pairs, apart)]
