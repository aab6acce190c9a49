"""Writes the pictures of the report in docs/pictures/, in a real browser, from the report of a run: `make pictures`.

Needs Debian's chromium, and playwright, which the test lock has.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).with_name("pictures")
WIDE, TALL, NARROW = ({"width": w, "height": h} for w, h in ((1280, 1000), (1280, 1150), (400, 860)))
_TELLING = {"Encoder", "Near duplicate"}  # evidence of the cluster that is shown open, the surest with both


def main(report: str) -> None:
    """Take all pictures of a report, a file."""
    with sync_playwright() as started:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        address = Path(report).absolute().as_uri()
        _take(browser, address, "report-light.png", TALL, "light", _cluster)
        _take(browser, address, "report-dark.png", WIDE, "dark", _waterfall)
        _take(browser, address, "report-narrow.png", NARROW, "light", _judging)
        browser.close()


def _take(browser: Any, address: str, name: str, size: dict[str, int], scheme: str, show: Any) -> None:
    context = browser.new_context(viewport=size, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    show(page)
    page.screenshot(path=PICTURES / name)
    context.close()


def _cluster(page: Any) -> None:
    """The list, and beside it a cluster of which the encoder and MinHash each found a part."""
    items = page.locator("#cluster-list button.cluster").all()
    telling = [item for item in items if set(item.locator(".key").all_inner_texts()) >= _TELLING]
    max(telling, key=lambda item: re.search(r"least sure pair ([\d.]+)", item.inner_text())[1]).click()
    page.locator("#cluster .pairs-box tr", has_text="Encoder").first.locator("button").click()
    _scroll_to(page, "#explore")


def _waterfall(page: Any) -> None:
    """Two questions of it side by side, and what speaks for and against them."""
    _cluster(page)
    _scroll_to(page, "#cluster div.compared")


def _judging(page: Any) -> None:
    """The likeliest pairs, to be judged."""
    _scroll_to(page, "#work")


def _scroll_to(page: Any, what: str) -> None:
    page.locator(what).first.evaluate("found => found.scrollIntoView()")


if __name__ == "__main__":
    main(*sys.argv[1:])
