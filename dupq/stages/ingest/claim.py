"""Claims on a site: of several runs into one output the last one takes it over, and the others stop at it."""

import hashlib
import uuid

from dupq import storage
from dupq.errors import DupqError


class Claim:
    """A run's claim to the folder that a site is made in.

    No run can know whether another one is alive or was killed, so the later one takes over and goes on from the
    parts that are there. The earlier one notices before it replaces a table.
    """

    def __init__(self, folder: str) -> None:
        """`folder`: where the site is made, `_parts/SITE`."""
        self._folder = folder
        self._uri = storage.join(folder, "owner.json")
        self._run = uuid.uuid4().hex

    def take(self, parts_from: object) -> str:
        """Claim the folder, and clear it of parts of anything else; returns where those from `parts_from` go."""
        work = hashlib.sha256(storage.json_bytes(parts_from)).hexdigest()[:16]
        if self._owner().get("work") != work:
            storage.delete_folder(self._folder)
        storage.write_json(self._uri, {"run": self._run, "work": work})
        return storage.join(self._folder, work)

    def is_held(self) -> bool:
        """Whether no later run has taken over."""
        return self._owner().get("run") == self._run

    def _owner(self) -> dict[str, str]:
        try:
            return storage.read_json(self._uri)
        except DupqError:  # there is none, or it is torn
            return {}

    def check(self) -> None:
        """Raise DupqError if a later run has taken over."""
        if not self.is_held():
            raise DupqError(f"{self._folder}: a later run into the same output has taken this site over")

    def give_up(self) -> None:
        """The site is made: remove the folder."""
        storage.delete_folder(self._folder)
