"""The page's own script and styles, assembled from package data, and the policy that allows nothing else."""

import base64
import hashlib
from importlib import resources

_SCRIPTS = ("dom", "texts", "graph", "waterfall", "cluster", "list", "judge", "threshold", "main")  # in this order
_STYLES = ("page", "explorer")


def script() -> str:
    """All scripts as one module: no build step, and nothing global."""
    return "\n".join(_read(f"{name}.js") for name in _SCRIPTS)


def styles() -> str:
    """All styles as one sheet."""
    return "\n".join(_read(f"{name}.css") for name in _STYLES)


def policy(script: str, styles: str) -> str:
    """The Content-Security-Policy of a page with this script and this sheet: no other runs, and nothing is loaded."""
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(styles)}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _read(name: str) -> str:
    return (resources.files("dupq.report") / "static" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
