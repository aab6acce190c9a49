"""The language of an archive, and of each of its sites."""

from collections.abc import Sequence
from itertools import islice

import pyarrow as pa

from dupq.archive import Shard, read_shard_batches
from dupq.stages.texts import AT_ONCE
from dupq.tables import QUESTIONS
from dupq.text.languages import language_of, share_in

_SHARDS = 32  # whose titles tell an archive's language
_LEAST_SHARE = 0.8  # of titles in one language; below it the archive is taken for one of several languages


def languages_of_sites(shards: Sequence[Shard]) -> dict[str, str]:
    """Return the language of most titles of each site: from the first titles of its first shard."""
    firsts = {shard.site: shard for shard in reversed(shards)}
    batches = (islice(read_shard_batches(shard, QUESTIONS, ["title"], AT_ONCE), 1) for shard in firsts.values())
    titles = (pa.concat_arrays([pa.array([], pa.string()), *(batch["title"] for batch in some)]) for some in batches)
    return dict(zip(firsts, map(language_of, titles), strict=True))


def language_of_shards(shards: Sequence[Shard]) -> tuple[str, str]:
    """Return the language of the archive and a sentence on how it was found: from the first titles of up to 32 shards.

    It is "other" if titles are in several languages, for the stems of one would be wrong for too many words.
    """
    columns = [pa.array([], pa.string())]
    for shard in shards[:: -(-len(shards) // _SHARDS) or 1]:
        columns += [batch["title"] for batch in islice(read_shard_batches(shard, QUESTIONS, ["title"], AT_ONCE), 1)]
    titles = pa.concat_arrays(columns)
    most = language_of(titles)
    share = share_in(titles, most)
    language = most if share >= _LEAST_SHARE else "other"
    return language, f"{language}, detected: {share:.0%} of the titles are {most}"
