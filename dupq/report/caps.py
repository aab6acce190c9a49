"""What a limit that was reached means for who reads the report."""

_MEANINGS = {
    "near_duplicates.bucket_limit": "Questions of a very large group of likely copies were compared with some of it "
    "only: a copy among them may be missing.",
    "encoder.maximum_tokens": "The encoder read the beginning of these texts only; words are compared in full.",
    "clusters.scored_size": "In groups so large, pairs that neither question lists count as unlikely, so that such a "
    "group may be cut where it need not be.",
    "neighbours.pairs_per_question": "Pairs that are likely duplicates were left out, because their question has so "
    "many: its cluster may lack members.",
    "files of the earlier run": "Some of what the earlier run had was not taken over but made again: it took longer, "
    "and nothing is missing.",
    "--skip-shard": "These parts of the archive were not read, as was asked for: their questions are missing.",
}


def meaning(name: str) -> str:
    """A sentence on the limit `name`, as the manifest calls it; empty for one that is not known here."""
    return next((said for part, said in _MEANINGS.items() if part in name), "")
