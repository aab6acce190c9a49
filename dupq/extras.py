"""Packages that dupq works without: which extra of pip brings each, and the one line where one is missing."""

import importlib
import importlib.util
from types import ModuleType

from dupq.errors import DupqError

PACKAGES = {  # by the name that is imported: its own name, and the extra of pip
    "altair": ("Altair", "jobs"),
    "nltk": ("NLTK", "jobs"),
    "pandas": ("pandas", "tables"),
    "py7zr": ("py7zr", "jobs"),
    "polars": ("Polars", "tables"),
    "ray": ("Ray", "jobs"),
    "sentence_transformers": ("sentence-transformers", "teacher"),
    "simplemma": ("simplemma", "jobs"),
    "textblob": ("TextBlob", "jobs"),
    "torch": ("torch", "jobs"),
}


def is_installed(module: str) -> bool:
    """Whether a package is there, without importing it."""
    return importlib.util.find_spec(module) is not None


def require(module: str, user: str) -> None:
    """Raise DupqError, naming the extra to install, if `module` is missing, which `user` needs."""
    if not is_installed(module):
        name, extra = PACKAGES[module]
        raise DupqError(f"{user} needs {name}, which is not installed: pip install 'dupq[{extra}]'")


def papers(part: str) -> list[ModuleType]:
    """Import a part of `dupq_papers`, the experiments of the papers (papers/README.md); none without that package."""
    return [importlib.import_module(f"dupq_papers.{part}")] if is_installed("dupq_papers") else []
