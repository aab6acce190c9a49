"""Where questions are on the web."""

import re

from dupq.runs.reader import Key

_SITE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


def link(key: Key) -> str | None:
    """Where a question is on the web, or None if its site is no plain host name."""
    site, question_id = key
    return f"https://{site}/questions/{question_id}" if _SITE.fullmatch(site) else None
