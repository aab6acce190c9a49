"""Merging the rows of a shard from those of its parts, a row group at a time."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.dump.parsing import Kind, sort_rows
from dupq.dump.shards.parts import in_turn, keys_of, read_rows, requests
from dupq.dump.shards.planning import KeyRange, ShardPlan
from dupq.dump.shards.range_planning import parts_of


class Slice(NamedTuple):
    """Rows of a part from `start` on, by their keys."""

    part: str
    start: int
    keys: np.ndarray


def row_groups(shard: ShardPlan, kind: Kind) -> Iterator[tuple[pa.Table, dict[str, int]]]:
    """Each row group, sorted as `kind` says, and how many rows of each part it leaves out.

    Of rows with the same key the last stays, if `kind` is unique. Memory, whatever the number of parts: up to three
    times a row group, one batch of a part (from S3 eight), and the shard's keys.
    """
    for slices in _located(shard):
        yield merge(slices, kind)


def merge(slices: list[Slice], kind: Kind) -> tuple[pa.Table, dict[str, int]]:
    """The rows of `slices`, which are in the order of the parts, and how many are left out of each part."""
    keys = np.concatenate([piece.keys for piece in slices])
    is_kept = _is_last(keys) if kind.is_unique else np.ones(len(keys), np.bool_)
    wanted = np.split(is_kept, np.cumsum([len(piece.keys) for piece in slices])[:-1])
    left_out = {piece.part: int((~rows).sum()) for piece, rows in zip(slices, wanted, strict=True) if not rows.all()}
    chosen = [(piece, rows) for piece, rows in zip(slices, wanted, strict=True) if rows.any()]
    table = pa.concat_tables(in_turn(_read, chosen, requests(slices[0].part)))
    if len(chosen) > 1 and not (keys[1:] > keys[:-1]).all():
        table = table.combine_chunks()  # sorting many chunks is slow
    return sort_rows(kind, table)[0], left_out


def _located(shard: ShardPlan) -> list[list[Slice]]:
    """Of each row group the slices of parts that it is merged from."""
    groups: list[list[Slice]] = [[] for _ in shard.groups]
    parts = parts_of(shard)
    find = partial(_slices, ranges=shard.groups)
    for found in in_turn(find, parts, requests(parts[0]) if parts else 1):
        for number, piece in found:
            groups[number].append(piece)
    return groups


def _slices(part: str, ranges: tuple[KeyRange, ...]) -> list[tuple[int, Slice]]:
    """The rows of a part that have keys of `ranges`, with the place of the range."""
    keys = keys_of(part).keys
    starts = np.searchsorted(keys, [one.first for one in ranges]).tolist()
    stops = np.searchsorted(keys, [one.last for one in ranges], "right").tolist()
    return [
        (number, Slice(part, start, keys[start:stop].copy()))  # a view would keep the file mapped
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
        if start < stop
    ]


def _is_last(keys: np.ndarray) -> np.ndarray:
    """Of each key whether no later one is equal."""
    is_last = np.ones(len(keys), np.bool_)
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        is_last[order[:-1]] = keys[order][1:] != keys[order][:-1]
    return is_last


def _read(chosen: tuple[Slice, np.ndarray]) -> pa.Table:
    piece, is_wanted = chosen
    return read_rows(piece.part, piece.start, is_wanted)
