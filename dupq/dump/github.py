"""GitHub issues, as `gh issue list --json number,title,body,labels,createdAt,author,url` and the REST API give them.

A row is an issue; pull requests are other posts. Labels are tags. Of a body the comments and the headings and check
boxes of its template are left out. "Duplicate of #12" in a body or in an exported comment is a link, and no text.
"""

import json
import re
from collections.abc import Mapping, Sequence

from dupq.dump.columns import Columns
from dupq.dump.fields import tags_of
from dupq.text.markup import as_html

DUPLICATE_OF = "DuplicateOf"  # an attribute of rows: the numbers of issues

FIELDS = (  # that are read
    *("number", "title", "body", "labels", "comments", "pull_request"),
    *("created_at", "createdAt", "author", "user", "url", "html_url"),
)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TEMPLATE = re.compile(r"^[ \t]*(?:#{1,6}[ \t].*|[-*][ \t]+\[[ xX]\].*|_No response_[ \t]*)$", re.MULTILINE)
_DUPLICATE = re.compile(r"\bduplicate of #(\d{1,9})\b", re.IGNORECASE)


def is_export(names: Sequence[str], columns: Columns) -> bool:
    """Tell whether a JSON file with such fields has GitHub's issues, unless options say what its columns are."""
    return not columns.is_given and {"number", "title", "body"} <= set(names)


def attributes(issue: Mapping[str, str]) -> dict[str, str]:
    """Return an issue's attributes, as a dump's posts have them, and DUPLICATE_OF."""
    body, address = issue.get("body", ""), issue.get("html_url") or issue.get("url", "")
    comments = [comment.get("body", "") for comment in _objects(issue, "comments")]
    numbers = _DUPLICATE.findall("\n".join([_COMMENT.sub("", body), *comments]))
    authors = _objects(issue, "author") + _objects(issue, "user")
    found = {
        "Id": issue.get("number", ""),
        "PostTypeId": "0" if "pull_request" in issue or "/pull/" in address else "1",
        "Title": issue.get("title", ""),
        "Body": as_html(_DUPLICATE.sub("", _TEMPLATE.sub("", _COMMENT.sub("", body)))),
        "Tags": tags_of(label.get("name", "") for label in _objects(issue, "labels")),
        "CreationDate": issue.get("created_at") or issue.get("createdAt", ""),
        "OwnerDisplayName": next((author.get("login", "") for author in authors), ""),
        DUPLICATE_OF: " ".join(sorted({number for number in numbers if number != issue.get("number")})),
    }
    return {name: value for name, value in found.items() if value}


def _objects(issue: Mapping[str, str], name: str) -> list[dict[str, str]]:
    """Return the objects in a field that holds one or a list of them; none for any other, such as a count."""
    try:
        found = json.loads(issue.get(name, "null"))
    except ValueError:
        return []
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]
