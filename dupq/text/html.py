"""From a question's HTML to plain text, with code and links treated as in the papers.

Links become one marker each (Bogdanova et al. 2015, section 5.1), images go, and code is removed, kept or
marked word by word (section 6.1). "Possible Duplicate" notes, which moderators put on top of a body until
2013, name the answer that dupq is to find: they are removed before anything is learned or searched.
"""

import regex
from selectolax.lexbor import LexborHTMLParser, LexborNode

LINK_MARK = "\ue000"
CODE_START = "\ue001"
CODE_END = "\ue002"

_MARKS = regex.compile(f"[{LINK_MARK}{CODE_START}{CODE_END}]")
_NOTE = regex.compile(
    r"\s*(?:possible\s+duplicates?|duplicates?|posible\s+duplicado|possível\s+duplicat[ao]"
    r"|возможный\s+дубликат|重複の可能性)(?:\s+of)?\s*[:：]",
    regex.IGNORECASE,
)


def html_to_text(html: str, code: str) -> str:
    """The text of `html`; `code` is removed, kept or prefixed.

    A link is left as LINK_MARK; prefixed code is put between CODE_START and CODE_END. Text of different
    elements is separated by white space, so that blocks never run together.
    """
    html = html if html.isascii() else _MARKS.sub(" ", html)
    if "<" not in html and "&" not in html:
        return html
    tree = LexborHTMLParser(html)
    if tree.body is None:
        return ""
    if _may_have_note(html):
        _remove_duplicate_notes(tree)
    _treat_code(tree, code)
    for node in tree.css("a"):
        node.replace_with(LINK_MARK)
    for node in tree.css("img, script, style"):
        node.decompose()
    return tree.body.text(separator=" ")


def _treat_code(tree: LexborHTMLParser, code: str) -> None:
    for node in tree.css("pre, code"):
        if code == "removed":
            node.replace_with(" ")
        elif code == "prefixed" and not _inside_code(node):
            node.replace_with(f"{CODE_START}{node.text(separator=' ')}{CODE_END}")


def _inside_code(node: LexborNode) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.tag in ("pre", "code"):
            return True
        parent = parent.parent
    return False


def _may_have_note(html: str) -> bool:
    """Told without a look at the elements, for most bodies have none; "&#": letters may be spelled as numbers."""
    return not html.isascii() or "&#" in html or "duplic" in html.lower()


def _remove_duplicate_notes(tree: LexborHTMLParser) -> None:
    for tag in ("blockquote", "p"):
        for node in tree.css(tag):
            match = _NOTE.match(node.text(separator=" "))
            if match is None:
                continue
            if node.css_first("a") is not None:
                node.decompose()
            elif match.end() >= len(node.text(separator=" ").rstrip()):
                _remove_note_over_several_blocks(node)


def _remove_note_over_several_blocks(heading: LexborNode) -> None:
    following = heading.next
    while following is not None and following.tag == "-text":
        following = following.next
    if following is not None and following.tag in ("p", "ul", "ol") and following.css_first("a") is not None:
        following.decompose()
        heading.decompose()
