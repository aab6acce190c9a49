"""What a limit that was reached means for who reads the report."""

_MEANINGS = {
    "buckets over": "Questions of a very large group of likely copies were compared with some of it "
    "only: a copy among them may be missing.",
    "encoder.maximum_tokens": "The encoder read only the beginning of these texts, also for the words in its score; "
    "copies and the overlap of words are computed from the whole texts.",
    "questions in components": "In groups so large, pairs that neither question lists count as unlikely, so that such "
    "a group may be cut where it need not be.",
    "pairs above the floor, more than": "Of likely pairs that are in neither question's list of nearest ones there are "
    "more than the limit allows on average, so all of them were left out: large groups of duplicates may be broken up. "
    "Raise neighbours.k.",
    "files of the earlier run": "Some of what the earlier run had was not taken over but made again: it took longer, "
    "and nothing is missing.",
    "--skip-shard": "These parts of the archive were not read, as was asked for: their questions are missing.",
}


def meaning(name: str) -> str:
    """A sentence on the limit `name`, as the manifest calls it; empty for one that is not known here."""
    return next((said for part, said in _MEANINGS.items() if part in name), "")
