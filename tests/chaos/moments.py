"""Which of all moments are tried."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

One = TypeVar("One")


class Moments:
    """Which moments are tried: a few of each kind, or all, and then none that an earlier session got through."""

    def __init__(self, few: int, test: str, dice: random.Random, tally: Path | None) -> None:
        self.few = few  # 0: all
        self._test, self._dice, self._tally = test, dice, tally

    def of(self, them: Iterable[One], times: int = 1, most: int | None = None) -> Iterator[One]:
        """Some of them, `times` as many as usual; each is written to the tally when its turn is over.

        Where all are asked for, and there are more than `most`, so many of them.
        """
        there = list(them)
        if most is not None and not self.few:
            there = self._dice.sample(there, min(most, len(there)))
        for one in self._dice.sample(there, min(self.few * times, len(there))) if self.few else self._left(there):
            yield one
            if self._tally is not None:
                with self._tally.open("a") as lines:
                    lines.write(f"{self._test}\t{one}\n")

    def _left(self, there: list[One]) -> Iterator[One]:
        known = self._tally.read_text().splitlines() if self._tally is not None and self._tally.exists() else []
        done = set(known)
        return (one for one in there if f"{self._test}\t{one}" not in done)
