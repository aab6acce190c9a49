"""The page of `dupq serve`: the report's explorer and its sample to be judged, without the clusters."""

from typing import NamedTuple

from markupsafe import Markup

from dupq.report import assets, commands
from dupq.report.explorer import choice
from dupq.report.explorer.data import run_data, script_text, site_data, to_judge
from dupq.report.page import environment
from dupq.runs import sample
from dupq.runs.reader import Run, ends_of
from dupq.serve.contents import Contents
from dupq.serve.queries import Queries


class Page(NamedTuple):
    """HTML, and the Content-Security-Policy to be sent with it."""

    html: str
    policy: str


def page_of(run: Run, index: Queries, contents: Contents) -> Page:
    """The page of a run: its clusters are asked of the server, and nothing else is loaded."""
    script, css = assets.script("served/remote"), assets.styles()
    policy = assets.policy(script, css, also="; connect-src 'self'")
    held = _held(run, index, contents)
    html = (
        environment()
        .get_template("served.html.jinja")
        .render(
            policy=policy,
            script=Markup(script),
            css=Markup(css),
            data=Markup(script_text(held)),
            explorer=held,
            manifest=run.manifest,
            verdicts_command=commands.with_verdicts(run),
            review_command=commands.review(run),
            metrics=run.metrics,
            uri=run.uri,
        )
    )
    return Page(html, f"{policy}; frame-ancestors 'none'")


def _held(run: Run, index: Queries, contents: Contents) -> dict[str, object]:
    """What the scripts read from the page: the run, its sites, and the pairs to be judged, without texts."""
    asked, work = sample.asked(run), choice.worklist(run)
    ends = [*(pair[:2] for pair in asked), *map(ends_of, work)]
    keys = list(dict.fromkeys(side for pair in ends for side in pair))
    places = {key: place for place, key in enumerate(keys)}
    return {
        **run_data(run),
        "words": contents.bodies.has_words,
        "count": index.meta["clusters"],
        "sites": [site_data(site) for site in index.sites.names],
        "held_sites": [row["site"] for row in index.rows("SELECT DISTINCT site FROM in_site ORDER BY site")],
        "questions": [contents.titled(key) for key in keys],
        "review": [[places[pair.left], places[pair.right], pair.verdict] for pair in asked],
        "worklist": [to_judge(row, places.__getitem__) for row in work],
    }
