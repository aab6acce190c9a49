"""Rows of Posts.xml and PostLinks.xml, attribute for attribute in the order of real dumps."""

import numpy as np

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LINE_END = b"\r\n"
DUPLICATE, LINKED = 3, 1

QUESTION_ROW = (
    b'  <row Id="%d" PostTypeId="1"%b CreationDate="%b" Score="%d" ViewCount="%d" Body="&lt;p&gt;%b"%b%b'
    b' LastActivityDate="%b" Title="%b" Tags="%b" AnswerCount="%d" CommentCount="%d"%b ContentLicense="%b" />\r\n'
)
ANSWER_ROW = (
    b'  <row Id="%d" PostTypeId="2" ParentId="%d" CreationDate="%b" Score="%d" Body="&lt;p&gt;%b"%b%b'
    b' LastActivityDate="%b" CommentCount="%d" ContentLicense="%b" />\r\n'
)
LINK_ROW = b'  <row Id="%d" CreationDate="%b" PostId="%d" RelatedPostId="%d" LinkTypeId="%d" />\r\n'

_LICENSES = np.array([b"CC BY-SA 2.5", b"CC BY-SA 3.0", b"CC BY-SA 4.0"], object)
_LICENSE_CHANGES = np.array(["2011-04-08", "2018-05-02"], "datetime64[ms]").astype(np.int64)
_DELETED_OWNERS = 0.02
_EDITED = 0.4


def opening(root: bytes) -> bytes:
    """What stands before the first row."""
    return BYTE_ORDER_MARK + b'<?xml version="1.0" encoding="utf-8"?>' + LINE_END + b"<" + root + b">" + LINE_END


def closing(root: bytes) -> bytes:
    """What stands after the last row."""
    return b"</" + root + b">"


def moments(milliseconds: np.ndarray) -> list[bytes]:
    """Times as dumps write them: UTC, milliseconds, no zone."""
    texts = np.datetime_as_string(milliseconds.astype("datetime64[ms]"))
    return texts.astype("S23").tolist()


def licenses(milliseconds: np.ndarray) -> list[bytes]:
    """The licence of posts of these times."""
    return _LICENSES[np.searchsorted(_LICENSE_CHANGES, milliseconds, side="right")].tolist()


def owners(rng: np.random.Generator, count: int, users: int) -> list[bytes]:
    """Who wrote the posts: few wrote many; of deleted ones only a name is left."""
    ids = (rng.random(count) ** 3 * users).astype(np.int64) + 2
    deleted = rng.random(count) < _DELETED_OWNERS
    return [
        b' OwnerDisplayName="user%d"' % owner if gone else b' OwnerUserId="%d"' % owner
        for owner, gone in zip(ids.tolist(), deleted.tolist(), strict=True)
    ]


def edits(rng: np.random.Generator, created: np.ndarray, users: int) -> tuple[list[bytes], np.ndarray]:
    """The last editor and edit of some of the posts of these times, and when each post was last changed."""
    result = [b""] * len(created)
    edited = np.flatnonzero(rng.random(len(created)) < _EDITED)
    editors = (rng.random(len(edited)) ** 3 * users).astype(np.int64) + 2
    changed = created.copy()
    changed[edited] += delays(rng, len(edited))
    dates = moments(changed[edited])
    for place, editor, date in zip(edited.tolist(), editors.tolist(), dates, strict=True):
        result[place] = b' LastEditorUserId="%d" LastEditDate="%b"' % (editor, date)
    return result, changed


def delays(rng: np.random.Generator, count: int) -> np.ndarray:
    """Milliseconds until something happens to a post: minutes as often as weeks."""
    return np.exp(rng.uniform(np.log(60_000), np.log(60 * 86_400_000), count)).astype(np.int64)


def scores(rng: np.random.Generator, count: int) -> list[int]:
    """Mostly 0 to 3, rarely hundreds, sometimes below 0."""
    return (rng.exponential(1.0, count) ** 3 - rng.integers(0, 3, count)).astype(np.int64).tolist()
