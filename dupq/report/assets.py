"""The page's own script and styles, assembled from package data, and the policy that allows nothing else."""

import base64
import hashlib
from importlib import resources
from typing import Literal

_SCRIPTS = ("dom", "texts", "graph", "waterfall", "cluster", "list", "judge", "threshold")  # in this order
_STYLES = ("page", "explorer")


def script(source: Literal["local", "served/remote"] = "local") -> str:
    """All scripts as one module: no build step, and nothing global. `source` is where clusters come from."""
    return "\n".join(_read(f"{name}.js") for name in (*_SCRIPTS, source, "main"))


def styles() -> str:
    """All styles as one sheet."""
    return "\n".join(_read(f"{name}.css") for name in _STYLES)


def policy(script: str, styles: str, also: str = "") -> str:
    """The Content-Security-Policy of a page with this script and this sheet: no other runs, and nothing is loaded.

    `also` are directives that allow more.
    """
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(styles)}'{also}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _read(name: str) -> str:
    return (resources.files("dupq.report") / "static" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
