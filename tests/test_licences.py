"""Nothing that is installed has a licence that would bind this project: no GPL, and nothing without a licence.

As a script it lists what is installed, by licence; it needs no network.
"""

import importlib.metadata
import re
from importlib.metadata import Distribution

import pytest

# LGPL binds a library's own files only; py7zr and gensim have it
_GPL = re.compile(r"\bA?GPL|(?<!Lesser )General Public License", re.IGNORECASE)


def licence_of(distribution: Distribution) -> str:
    """What the distribution's metadata says of its licence, in the best form that it has; empty if nothing."""
    metadata = distribution.metadata
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    classified = [text for text in metadata.get_all("Classifier", []) if text.startswith("License ::")]
    if classified:
        return "; ".join(text.removeprefix("License :: OSI Approved :: ") for text in classified)
    return str(metadata.get("License") or "").partition("\n")[0] or _heading_of_file(distribution)


def _heading_of_file(distribution: Distribution) -> str:
    """The first words of the file that the metadata name, as "MIT License"."""
    names = distribution.metadata.get_all("License-File", [])
    found = [text for name in names if (text := distribution.read_text(f"licenses/{name}"))]
    return found[0].strip().partition("\n")[0] if found else ""


def is_gpl(licence: str) -> bool:
    """Whether only the GPL, of any version, is offered."""
    return all(_GPL.search(choice) for choice in re.split(r"\bOR\b", licence))


def installed() -> list[Distribution]:
    return [found for found in importlib.metadata.distributions() if found.metadata["Name"] != "dupq"]


@pytest.mark.parametrize(
    ("licence", "is_refused"),
    [
        ("MIT", False),
        ("LGPL-2.1-or-later", False),
        ("GNU Lesser General Public License v2 or later (LGPLv2+)", False),
        ("AGPL-3.0-or-later", True),
        ("GNU General Public License v3 (GPLv3)", True),
        ("GPL-2.0-only OR MIT", False),
        ("GPL-2.0-only AND MIT", True),
    ],
)
def test_what_counts_as_gpl(licence: str, is_refused: bool) -> None:
    assert is_gpl(licence) == is_refused


def test_every_dependency_names_its_licence_and_none_is_gpl() -> None:
    found = {distribution.metadata["Name"]: licence_of(distribution) for distribution in installed()}
    assert {"ray", "torch", "pyarrow", "gensim", "datasketch", "boto3"} <= found.keys()
    assert not {name for name, licence in found.items() if not licence}
    assert not {name: licence for name, licence in found.items() if is_gpl(licence)}


if __name__ == "__main__":
    for row in sorted((licence_of(found), found.metadata["Name"], found.version) for found in installed()):
        print(*row, sep="\t")
