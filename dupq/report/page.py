"""The report of a run: one HTML file that needs no network and no other file.

Titles are untrusted text. Jinja escapes all that is not marked safe, links are built from checked parts only, and the
scripts turn the page's data into text nodes. The page's policy allows only its own script and style sheet, by their
hashes, so even a mistake in the escaping could not run anything.
"""

import base64
import functools
import hashlib
import shlex
from collections.abc import Callable, Mapping
from importlib import resources

import jinja2
from markupsafe import Markup

from dupq import storage
from dupq.report import charts, summary, where
from dupq.report.charts import at_thresholds
from dupq.report.explorer import explorer_data, script_text, shown_title
from dupq.runs.reader import Run, open_run
from dupq.settings.config import to_dict

_SCRIPTS = ("dom", "texts", "graph", "waterfall", "cluster", "list", "judge", "threshold")  # in this order
_STYLES = ("page", "explorer")
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
_SETTINGS = {  # shown, by section
    "text": ("code", "fields"),
    "near_duplicates": ("shingle_size", "permutations", "threshold"),
    "encoder": ("maximum_tokens",),
    "neighbours": ("k",),
    "calibration": ("precision",),
    "clusters": ("threshold", "known_links"),
}


def page_script(source: str = "local") -> str:
    """Return all scripts as one module, without globals or a build step; `source` says where clusters come from."""
    return "\n".join(_read(f"{name}.js") for name in (*_SCRIPTS, source, "main"))


def filled(name: str, run: Run, data: Mapping[str, object], is_served: bool = False, **more: object) -> tuple[str, str]:
    """Return a page of `run` (the template `name`) with the `data` that its scripts read, and the page's policy.

    The Content-Security-Policy allows its own script and sheet only, and a served page requests to its server. `more`
    are names for the template.
    """
    script = page_script("served/remote" if is_served else "local")
    css, also = "\n".join(_read(f"{name}.css") for name in _STYLES), "; connect-src 'self'" if is_served else ""
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(css)}'{also}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    html = template(name).render(
        run=run,
        explorer=data,
        data=Markup(script_text(data)),
        script=Markup(script),
        css=Markup(css),
        policy=policy,
        next_run=functools.partial(summary.next_run, run),
        **more,
    )
    return html, policy


@functools.cache
def template(name: str) -> jinja2.Template:
    """Return a template, in which unsafe text is escaped, and an undefined name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dupq", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for kind in ("number", "score", "share", "duration", "memory"):
        environment.filters[kind] = functools.partial(_or_dash, getattr(summary, kind))
    environment.filters |= {"counted": summary.counted, "words": summary.words, "shown_title": shown_title}
    return environment.get_template(name)


def _or_dash(show: Callable[..., str], value: object) -> str:
    return "–" if value is None else show(value)


def _read(name: str) -> str:
    return (resources.files("dupq.report") / "static" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def meaning(name: str) -> str:
    """Return a sentence on the limit `name` of the manifest; empty if it is unknown here."""
    return next((sentence for words, sentence in _MEANINGS.items() if words in name), "")


def write(run_uri: str) -> str:
    """Write the report into the run, and return its URI."""
    target = storage.join(open_run(run_uri).uri, "report.html")
    storage.write_bytes(target, render(run_uri).encode())
    return target


def render(run_uri: str) -> str:
    """Return the report of the run at `run_uri`: the same run gives the same text."""
    run = open_run(run_uri)
    metrics, stages, counts = run.metrics, run.manifest.get("stages") or [], charts.Counts(run)
    links = metrics["links"] or {}
    rows = links["thresholds"] if links else metrics["thresholds"]
    html, _ = filled(
        "page.html.jinja",
        run,
        {**explorer_data(run), "steps": at_thresholds(run, counts)},
        charts=charts,
        counts=counts,
        where=where.charts(run),
        links=links,
        links_found=links["thresholds"][0]["links_found"] if links else None,  # at the run's own threshold
        review_command=shlex.join(["dupq", "review", "--run", run.uri]),
        worklist=run.worklist.arrow().to_pylist(),
        summary=summary.findings(run),
        archive=summary.archive_of(run),
        grounds=summary.grounds(metrics["calibration"]),
        # the run's own row, and the others that say something else
        thresholds=[
            row for row in rows if row is rows[0] or (row["pairs"] and row["threshold"] != rows[0]["threshold"])
        ],
        settings=_settings(run),
        sites=sorted(metrics["sites"].items(), key=lambda site: (-site[1], site[0])),
        stages=stages,
        longest=max((stage.get("seconds") or 0 for stage in stages), default=0),
        largest_memory=max((stage.get("peak_memory_mb") or 0 for stage in stages), default=0),
        caps=[
            {"stage": stage["name"], "name": name, "times": count, "meaning": meaning(name)}
            for stage in stages
            for name, count in sorted((stage.get("caps") or {}).items())
            if count
        ],
    )
    return html


def _settings(run: Run) -> dict[str, object]:
    sections = to_dict(run.settings)
    values = {f"{section}.{name}": sections[section][name] for section, names in _SETTINGS.items() for name in names}
    if run.settings.clusters.threshold < 0:
        values["clusters.threshold"] = f"{summary.score(run.metrics['threshold'])}, chosen for calibration.precision"
    return values
