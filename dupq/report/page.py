"""The report of a run: one HTML file that needs no network and no other file.

Titles are untrusted text. Jinja escapes all that is not marked safe, links are built from checked parts only, and the
scripts turn the page's data into text nodes. The page's policy allows only its own script and style sheet, by their
hashes, so even a mistake in the escaping could not run anything.
"""

import base64
import functools
import hashlib
import shlex
from importlib import resources
from typing import Literal

import jinja2
from markupsafe import Markup

from dupq import storage
from dupq.report import charts, summary
from dupq.report.charts import SOURCES, at_thresholds, count_pairs
from dupq.report.explorer import explorer_data, script_text, shown_title
from dupq.report.summary import grounds
from dupq.runs import queries
from dupq.runs.reader import Run, open_run
from dupq.runs.records import ManifestStage, Measures
from dupq.settings.config import to_dict

_SCRIPTS = ("dom", "texts", "graph", "waterfall", "cluster", "list", "judge", "threshold")  # in this order
_STYLES = ("page", "explorer")


def page_script(source: Literal["local", "served/remote"] = "local") -> str:
    """Return all scripts as one module, without globals or a build step; `source` says where clusters come from."""
    return "\n".join(_read(f"{name}.js") for name in (*_SCRIPTS, source, "main"))


def page_styles() -> str:
    """Return all styles as one sheet."""
    return "\n".join(_read(f"{name}.css") for name in _STYLES)


def policy(script: str, styles: str, also: str = "") -> str:
    """Return a Content-Security-Policy that allows this script and this sheet, and nothing to be loaded.

    `also` holds directives that allow more.
    """
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(styles)}'{also}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _read(name: str) -> str:
    return (resources.files("dupq.report") / "static" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_MEANINGS = {
    "buckets over": "Questions of a very large group of likely copies were compared with some of it "
    "only: a copy among them may be missing.",
    "encoder.maximum_tokens": "The encoder read only the beginning of these texts, also for the words in its score; "
    "copies and the overlap of words are computed from the whole texts.",
    "questions in components": "In groups so large, pairs that neither question lists count as unlikely, so that such "
    "a group may be cut where it need not be.",
    "pairs above the floor, more than": "Of likely pairs that are in neither question's list of nearest ones there are "
    "more than the limit allows on average, so all of them were left out: large groups of duplicates may be broken up. "
    "Raise neighbours.k.",
    "files of the earlier run": "Some of what the earlier run had was not taken over but made again: it took longer, "
    "and nothing is missing.",
    "--skip-shard": "These parts of the archive were not read, as was asked for: their questions are missing.",
}


def meaning(name: str) -> str:
    """Return a sentence on the limit `name` of the manifest; empty if it is unknown here."""
    return next((sentence for words, sentence in _MEANINGS.items() if words in name), "")


SITES_SHOWN = 12

_SETTINGS = [
    "text.code",
    "text.fields",
    "near_duplicates.shingle_size",
    "near_duplicates.permutations",
    "near_duplicates.threshold",
    "encoder.maximum_tokens",
    "neighbours.k",
    "calibration.precision",
    "clusters.threshold",
    "clusters.known_links",
]


def write(run_uri: str) -> str:
    """Write the report into the run, and return its URI."""
    target = storage.join(open_run(run_uri).uri, "report.html")
    storage.write_bytes(target, render(run_uri).encode())
    return target


def render(run_uri: str) -> str:
    """Return the report of the run at `run_uri`: the same run gives the same text."""
    return environment().get_template("page.html.jinja").render(_context(open_run(run_uri)))


@functools.cache
def environment() -> jinja2.Environment:
    """Return the templates' environment: unsafe text is escaped, and an undefined name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dupq", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("number", "counted", "score", "share", "duration", "memory", "words"):
        environment.filters[name] = getattr(summary, name)
    environment.filters["shown_title"] = shown_title
    return environment


def _context(run: Run) -> dict[str, object]:
    metrics, stages, counts = run.metrics, run.manifest.get("stages") or [], count_pairs(run)
    links, explorer = metrics.get("links"), {**explorer_data(run), "steps": at_thresholds(run, counts)}
    script, css = page_script(), page_styles()
    return {
        "policy": policy(script, css),
        "script": Markup(script),
        "css": Markup(css),
        "data": Markup(script_text(explorer)),
        "explorer": explorer,
        "links": links,
        "has_links": counts.is_linked,
        "links_found": links_found(links),
        "verdicts_command": summary.with_verdicts(run),
        "review_command": shlex.join(["dupq", "review", "--run", run.uri]),
        "worklist": queries.worklist(run),
        "summary": summary.findings(run.uri),
        "thresholds": _thresholds(links["thresholds"] if links else metrics.get("thresholds") or []),
        "threshold_is_set": run.settings.clusters.threshold >= 0,
        "grounds": grounds(metrics["calibration"]) if "calibration" in metrics else "",
        "manifest": run.manifest,
        "inputs": run.manifest.get("inputs") or {},
        "metrics": metrics,
        "planted": metrics.get("planted") or {},
        "settings": _settings(run),
        "sites": sorted((metrics.get("sites") or {}).items(), key=lambda site: (-site[1], site[0])),
        "sites_shown": SITES_SHOWN,
        "recall_sites": charts.SITES,
        "stages": stages,
        "longest": max((stage.get("seconds") or 0 for stage in stages), default=0),
        "largest_memory": max((stage.get("peak_memory_mb") or 0 for stage in stages), default=0),
        "caps": _caps(stages),
        "drift": metrics.get("drift"),
        "estimates": metrics.get("verdicts"),
        "not_measured": metrics.get("not_measured") or {},
        "sources": {
            source: (int(counts.pairs[row].sum()), int(counts.joining[row].sum()), int(counts.known[row].sum()))
            for row, source in enumerate(SOURCES)
        },
        "meter": charts.meter,
        "charts": {
            "funnel": charts.funnel(metrics),
            "nearest": charts.nearest(links or {}),
            "reliability": charts.reliability(links or {}),
            "planted": charts.planted(metrics.get("planted") or {}),
            "probabilities": charts.probabilities(counts, metrics.get("threshold")),
            "lost": charts.lost(links or {}),
            "recall_by_site": charts.recall_by_site(links or {}),
            "cluster_sizes": charts.cluster_sizes(run),
        },
    }


def _thresholds(rows: list[Measures]) -> list[Measures]:
    """Return the run's own row, and the others that say something else."""
    return [*rows[:1], *(row for row in rows[1:] if row["pairs"] and row["threshold"] != rows[0]["threshold"])]


def links_found(links: Measures | None) -> float | None:
    """Return the share of the test links among the pairs above the run's own threshold."""
    own = next(iter((links or {}).get("thresholds", [])), None)
    return own.get("links_found") if own else None


def _caps(stages: list[ManifestStage]) -> list[dict[str, object]]:
    return [
        {"stage": stage["name"], "name": name, "times": count, "meaning": meaning(name)}
        for stage in stages
        for name, count in sorted((stage.get("caps") or {}).items())
        if count
    ]


def _settings(run: Run) -> dict[str, object]:
    sections = to_dict(run.settings)
    values = {path: sections[section][name] for path in _SETTINGS for section, name in [path.split(".")]}
    if run.settings.clusters.threshold < 0:
        own = summary.score(run.metrics.get("threshold"))
        values["clusters.threshold"] = f"{own}, chosen for calibration.precision"
    return values
