"""What the report of a run takes: to be made, to be opened in a browser, and to search and open clusters there.

    python benchmarks/report.py --run URI [--rounds 5] [--json FILE]

The report is made anew, into a temporary folder, and opened in headless Chromium, each time in a browser that knows
nothing yet. `ready_seconds` is from the address to a page that can be used, `search_seconds` from a word in the search
box to the list, `open_seconds` from a press on a cluster to its graph and its evidence. Medians. Needs Debian's
chromium, and playwright, which the test lock has.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dupq.report import page as report
from dupq.runs.reader import open_run

OPENED = 10  # clusters


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", required=True, metavar="URI", help="a finished run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("no chromium here: apt-get install chromium")
    run = open_run(options.run)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "report.html"
        made = timed(lambda: place.write_text(report.render(run.uri), encoding="utf-8"))
        figures = {
            "questions": run.metrics["questions"],
            "clusters": run.metrics["clusters"],
            "pairs": len(run.pairs),
            "made_seconds": round(made, 1),
            "megabytes": round(place.stat().st_size / 1e6, 2),
            **opened(place.as_uri(), program, options.rounds),
        }
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def opened(address: str, program: str, rounds: int) -> dict[str, float]:
    """What a reader waits for."""
    from playwright.sync_api import sync_playwright

    seconds: dict[str, list[float]] = {"ready_seconds": [], "search_seconds": [], "open_seconds": []}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(rounds):
            context = browser.new_context(viewport={"width": 1400, "height": 1000})
            page = context.new_page()
            seconds["ready_seconds"].append(timed(lambda page=page: ready(page, address)))
            seconds["search_seconds"].append(timed(lambda page=page: search(page, "a")))
            buttons = page.locator("#cluster-list button.cluster").all()[1 : OPENED + 1]
            seconds["open_seconds"] += [timed(lambda page=page, one=one: press(page, one)) for one in buttons]
            context.close()
        browser.close()
    found = {name: round(statistics.median(values), 2) for name, values in seconds.items() if values}
    return {**found, "slowest_ready_seconds": round(max(seconds["ready_seconds"]), 2)}


def ready(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready]")


def search(page: Any, words: str) -> None:
    page.fill("input[name=search]", words)
    page.evaluate("new Promise((then) => requestAnimationFrame(() => setTimeout(then)))")  # it is drawn


def press(page: Any, button: Any) -> None:
    button.click()
    page.evaluate("new Promise((then) => requestAnimationFrame(() => setTimeout(then)))")


def timed(do: Callable[[], object]) -> float:
    """The seconds that it takes."""
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
