"""What the compiled parser reads of each row: the attributes, as their users say it and as arrays for the kernel.

A name is found by its hash (FNV-1a, 64 bits) and then compared.
"""

from typing import NamedTuple

import numpy as np

STRING, INTEGER, DATE = 0, 1, 2
NEVER, ALWAYS = -1, 0
LONGEST_NAME = 32
FNV_START, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


class Attribute(NamedTuple):
    """An attribute to read. `lowest` and `highest` bound an integer's value, or a string's bytes by `highest`.

    Integers and dates may be required.
    """

    name: str
    kind: int  # STRING, INTEGER or DATE
    required: int = NEVER  # or ALWAYS, or the selector's value of the rows that must have it
    lowest: int = -(1 << 63)
    highest: int = (1 << 63) - 1


class Layout(NamedTuple):
    """What the kernel reads of each row: one array element for each attribute."""

    names: np.ndarray  # (attributes, LONGEST_NAME) uint8
    lengths: np.ndarray  # of the names
    hashes: np.ndarray  # of the names, uint64
    kinds: np.ndarray
    places: np.ndarray  # the attribute's row in PlainRows.numbers or in PlainRows.texts
    required: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    selector: int  # the attribute that says which rows are kept, or -1 to keep all
    kept: np.ndarray  # the selector's values of kept rows
    unsure: np.ndarray  # values of the first attribute that are left to the slow way


def layout(
    attributes: tuple[Attribute, ...],
    selector: str | None = None,
    kept: tuple[int, ...] = (),
    unsure: tuple[int, ...] = (),
) -> Layout:
    """The kernel's form of `attributes`."""
    names = np.zeros((len(attributes), LONGEST_NAME), np.uint8)
    for index, attribute in enumerate(attributes):
        names[index, : len(attribute.name)] = np.frombuffer(attribute.name.encode(), np.uint8)
    kinds = np.array([attribute.kind for attribute in attributes], np.int64)
    is_text = kinds == STRING
    return Layout(
        names,
        np.array([len(attribute.name) for attribute in attributes], np.int64),
        np.array([_hash(attribute.name) for attribute in attributes], np.uint64),
        kinds,
        np.where(is_text, np.cumsum(is_text) - 1, np.cumsum(~is_text) - 1),
        np.array([attribute.required for attribute in attributes], np.int64),
        np.array([attribute.lowest for attribute in attributes], np.int64),
        np.array([attribute.highest for attribute in attributes], np.int64),
        -1 if selector is None else [attribute.name for attribute in attributes].index(selector),
        np.array(kept, np.int64),
        np.array(unsure, np.int64),
    )


def _hash(name: str) -> np.uint64:
    value = int(FNV_START)
    for byte in name.encode():
        value = (value ^ byte) * int(FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return np.uint64(value)
