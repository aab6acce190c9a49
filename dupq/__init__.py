"""dupq finds the duplicate questions in whole question-and-answer archives.

    import dupq

    run = dupq.open_run("s3://…/runs")
    nights = dupq.open_runs("s3://…/runs")
    encoder = dupq.load_encoder("s3://…/encoder")
    found = dupq.find_duplicates(["How do I …?", …])

docs/python.md describes them. Their modules are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dupq.api.duplicates import find_duplicates
    from dupq.api.encoders import load_encoder
    from dupq.api.runs import open_run, open_runs
    from dupq.errors import DupqError

__version__ = "0.2.0"
__all__ = ["DupqError", "__version__", "find_duplicates", "load_encoder", "open_run", "open_runs"]

_MODULES = {
    "DupqError": "dupq.errors",
    "find_duplicates": "dupq.api.duplicates",
    "load_encoder": "dupq.api.encoders",
    "open_run": "dupq.api.runs",
    "open_runs": "dupq.api.runs",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return all names, for completion in notebooks."""
    return sorted({*globals(), *__all__})
