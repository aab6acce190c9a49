"""Reading verdicts as keys of a run, and the sample that they are on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dupq import storage
from dupq.evaluation.review import Rows
from dupq.evaluation.verdicts import VERDICTS, Verdict, last_verdicts
from dupq.tables import REVIEW
from dupq.text.keys import Sites


@dataclass(frozen=True)
class Judged:
    """Verdicts as keys of a run; pairs of sites that the run lacks are left out, and counted."""

    left: np.ndarray
    right: np.ndarray
    verdicts: np.ndarray  # int8, codes of dupq.evaluation.verdicts.VERDICTS
    elsewhere: int

    def pairs(self, verdict: int) -> np.ndarray:
        """The pairs (int64, shape (m, 2), left < right) with a verdict: SAME, DIFFERENT or UNSURE."""
        return np.stack([self.left, self.right], axis=1)[self.verdicts == verdict]


NONE_JUDGED = Judged(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int8), 0)


def read_verdicts(uri: str | None, sites: Sites) -> Judged:
    """The verdicts of a file; none without one. Raises DupqError for one that is not readable."""
    if uri is None:
        return NONE_JUDGED
    return judged(last_verdicts([uri])[0], sites, uri)


def judged(given: Sequence[Verdict], sites: Sites, place: str) -> Judged:
    """Verdicts as keys, of each pair the last one; errors name `place`."""
    given = list({row[:4]: row for row in given}.values())
    here = [row for row in given if row.site_left in sites.names and row.site_right in sites.names]
    left = [int(sites.pack(row.site_left, np.array([row.question_id_left]), place)[0]) for row in here]
    right = [int(sites.pack(row.site_right, np.array([row.question_id_right]), place)[0]) for row in here]
    ends = [np.array(left, np.int64), np.array(right, np.int64)]
    codes = np.array([VERDICTS[row.verdict] for row in here], np.int8)
    return Judged(np.minimum(*ends), np.maximum(*ends), codes, len(given) - len(here))


def read_rows(uri: str) -> Rows:
    """A sample as the run wrote it."""
    return Rows(*(column.to_numpy() for column in storage.read_table(uri, REVIEW).columns))
