"""What mkdocs needs besides docs/: pages from elsewhere in the repository, and the files that pages link to."""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {  # in the repository, and on the site
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/results/scale.md": "scale-runs.md",
    "benchmarks/results/scale-2026-11-25.md": "scale-runs-without-tiles.md",
    "benchmarks/results/scale-short-2026-11-25.md": "scale-short-runs.md",
    "examples/cluster/README.md": "examples/cluster.md",
    "examples/laptop/README.md": "examples/laptop.md",
    "examples/one-big-machine/README.md": "examples/one-big-machine.md",
    "papers/README.md": "papers-package.md",
}
PAGES |= {
    f"benchmarks/results/papers/{page.name}": f"papers-results/{page.name}"
    for page in sorted((ROOT / "benchmarks/results/papers").glob("*.md"))
}
_LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for source, place in PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are on the site; a file that is no page is copied to it, below files/. mkdocs warns of the dead."""
    sources = {place: source for source, place in PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    if source == "CHANGELOG.md":  # it names everything, and would be found first
        page.meta["search"] = {"exclude": True}

    def on_site(link: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(source).parent / link[1])
        place = _place(target)
        if (ROOT / target).is_file() and files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / target)))
        return f"]({os.path.relpath(place, PurePosixPath(page.file.src_uri).parent)}"

    return _LINK.sub(on_site, markdown)


def _place(target: str) -> str:
    """Where a file of the repository is on the site."""
    return PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else f"files/{target}")
