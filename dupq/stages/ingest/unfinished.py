"""The folder that a site is made in: the next attempt goes on from the parts that one that was cut off left there."""

import hashlib

from typing_extensions import TypedDict

from dupq import archive, storage
from dupq.json_files import read_whole


class _Work(TypedDict):
    work: str


def begin(folder: str, parts_from: object) -> str:
    """Clear `folder` of parts of anything else; returns where those from `parts_from` are, or go."""
    work = hashlib.sha256(storage.json_bytes(parts_from)).hexdigest()[:16]
    if read_whole(_mark(folder), _Work) != {"work": work}:
        storage.delete_folder(folder)
        storage.write_json(_mark(folder), {"work": work})
    return storage.join(folder, work)


def is_there(folder: str) -> bool:
    """Whether an attempt was cut off while it worked in `folder`."""
    return storage.exists(_mark(folder))


def _mark(folder: str) -> str:
    return storage.join(folder, archive.BEGUN)
