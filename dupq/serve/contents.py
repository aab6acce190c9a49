"""What is in a cluster: its questions, its pairs, and two questions side by side with what their score is made of."""

import json
from typing import Any

from dupq.report.explorer.contents import PAIRS, QUESTIONS, Text, telling
from dupq.report.explorer.data import cluster_data, pair_data, parts_data, question_data
from dupq.runs.reader import Key, Run, TableRow, ends_of
from dupq.serve.asked import RequestError, start_of, whole
from dupq.serve.bodies import Bodies
from dupq.serve.clusters import changes_of
from dupq.serve.queries import Queries, split
from dupq.serve.staging import FIGURES, SOURCES
from dupq.text.keys import ID_BITS, MAXIMUM_ID

PAGE = 100  # questions at once, after the first ones
_EDGE = f'edge."left", edge."right", source, probability, {", ".join(FIGURES)}, known AS known_link'
Shown = dict[str, Any]


class Contents:
    """The contents of the clusters of a run."""

    def __init__(self, index: Queries, run: Run) -> None:
        """Texts and embeddings are read from the archive and the run, when they are asked for."""
        self._index = index
        self.bodies = Bodies(run)

    def cluster(self, asked: dict[str, str]) -> Shown:
        """A cluster with the first of its questions, and the most telling of the pairs between these."""
        row = self._cluster(asked)
        pairs = self._first_pairs(row["place"])
        numbers = self._numbers(pairs)
        return {
            **cluster_data(row),
            "reason": row["reason"],
            "changes": changes_of(row),
            "questions": self._questions(row["place"], 0, QUESTIONS),
            "pairs": [pair_data(pair, numbers) for pair in pairs],
        }

    def questions(self, asked: dict[str, str]) -> Shown:
        """The next questions of a cluster."""
        return {"questions": self._questions(self._cluster(asked)["place"], start_of(asked), PAGE)}

    def pairs(self, asked: dict[str, str]) -> Shown:
        """The next pairs of a cluster, the least probable first, without those that `cluster` shows."""
        place = self._cluster(asked)["place"]
        first = [
            (*map(self._index.packed, ends_of(row)), SOURCES.index(row["source"])) for row in self._first_pairs(place)
        ]
        others = f' AND (edge."left", edge."right", source) NOT IN (VALUES {", ".join(["(?, ?, ?)"] * len(first))})'
        rows = self._index.rows(
            f"SELECT {_EDGE} FROM edge WHERE place = ?{others if first else ''} "
            'ORDER BY probability, edge."left", edge."right", source LIMIT ? OFFSET ?',
            *(place, *(value for pair in first for value in pair), PAIRS, start_of(asked)),
        )
        pairs = [self._as_in_table(row) for row in rows]
        numbers = self._numbers(pairs)
        return {"pairs": [{**pair_data(row, numbers), "questions": self._ends(row, numbers)} for row in pairs]}

    def pair(self, asked: dict[str, str]) -> Shown:
        """Two questions with their texts, and with `parts` what the encoder's score of them is made of."""
        keys = [self._asked_key(asked.get(side, "")) for side in ("left", "right")]
        left, right = map(self._with_text, keys)
        return {"left": left, "right": right, "parts": self._parts(keys) if asked.get("parts") else None}

    def titled(self, key: Key) -> Shown:
        """A question without its text."""
        packed = self._index.packed(key)
        rows = self._index.rows("SELECT key, title, score, tags FROM question WHERE key = ?", packed)
        return _question(rows[0] if rows else {"key": packed, "title": None})

    def _cluster(self, asked: dict[str, str]) -> TableRow:
        rows = self._index.rows("SELECT * FROM cluster WHERE cluster_id = ?", asked.get("id", ""))
        if not rows:
            raise RequestError("no such cluster")
        return rows[0]

    def _questions(self, place: int, start: int, most: int) -> list[Shown]:
        rows = self._index.rows(
            "SELECT in_cluster.key AS key, title, score, tags FROM in_cluster LEFT JOIN question USING (key) "
            "WHERE place = ? AND number >= ? ORDER BY number LIMIT ?",
            *(place, start, most),
        )
        return [_question(row) for row in rows]

    def _first_pairs(self, place: int) -> list[TableRow]:
        """The pairs between the first questions of a cluster that are shown, as rows of `pairs`."""
        rows = self._index.rows(
            f"SELECT {_EDGE} FROM in_cluster AS one "
            'CROSS JOIN edge ON edge.place = one.place AND edge."left" = one.key '
            'JOIN in_cluster AS other ON other.key = edge."right" '
            "WHERE one.place = ? AND one.number < ? AND other.number < ?",
            *(place, QUESTIONS, QUESTIONS),
        )
        return telling([self._as_in_table(row) for row in rows])

    def _as_in_table(self, row: TableRow) -> TableRow:
        named = {**row, "source": SOURCES[row["source"]]}
        for side in ("left", "right"):
            named[f"site_{side}"], named[f"question_id_{side}"] = self._index.key_of(row[side])
        return named

    def _numbers(self, pairs: list[TableRow]) -> dict[Key, int]:
        """The places in their cluster of the questions of pairs."""
        keys = {row[side] for row in pairs for side in ("left", "right")}
        marks = ", ".join("?" * len(keys))
        found = self._index.rows(f"SELECT key, number FROM in_cluster WHERE key IN ({marks})", *keys)
        return {self._index.key_of(row["key"]): row["number"] for row in found}

    def _ends(self, row: TableRow, numbers: dict[Key, int]) -> list[Shown]:
        return [self.titled(key) for key in sorted(ends_of(row), key=lambda key: numbers[key])]

    def _asked_key(self, text: str) -> int:
        """What the scripts call a question by: the place of its site, a dot, and its id."""
        site, _, number = text.partition(".")
        return whole(site, len(self._index.sites.names)) << ID_BITS | whole(number, MAXIMUM_ID + 1)

    def _with_text(self, key: int) -> Shown:
        rows = self._index.rows("SELECT file, row FROM question WHERE key = ?", key)
        files = self._index.meta["questions"]
        text = self.bodies.text((files[rows[0]["file"]], rows[0]["row"]), self._index.key_of(key)) if rows else None
        site, number = split(key)
        return {"site": site, "id": number, "gone": True} if text is None else question_data(site, number, text)

    def _parts(self, keys: list[int]) -> Shown | None:
        rows = self._index.rows("SELECT file, row FROM embedded WHERE key IN (?, ?)", *keys)
        files = self._index.meta["embeddings"]
        left, right = map(self._index.key_of, keys)
        weighing = self.bodies.weighing([(files[row["file"]], row["row"]) for row in rows], [left, right])
        return None if weighing is None else parts_data(weighing, left, right)


def _question(row: TableRow) -> Shown:
    site, number = split(row["key"])
    if row["title"] is None:
        return {"site": site, "id": number, "gone": True}
    return question_data(site, number, Text(row["title"], "", row["score"], json.loads(row["tags"])))
