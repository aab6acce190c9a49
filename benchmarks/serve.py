"""How many typed questions `dupq serve` answers, how fast, and in how much memory.

    python benchmarks/serve.py --run URI [--connections 1 8] [--seconds 60] [--quick] [--json FILE]

One server process. So many connections ask GET /similar one question after the other: titles and beginnings of bodies
of the run's own archive, every third word left out. For each number of connections: answers per second, seconds of the
median and of the slowest hundredth, CPU seconds of the server per answer, and answers that were none. `first_seconds`
is the first answer, for which the archive is read; `peak_gb` the most memory of a process. --quick: five seconds.
"""

import argparse
import http.client
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dupq.runs.reader import open_run
from dupq.text.tokens import html_to_text

WORDS = 100  # of a body


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", required=True, metavar="URI", help="a finished run")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8], metavar="N")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    run, seconds = open_run(options.run), 5.0 if options.quick else options.seconds
    targets = itertools.cycle(questions(run.questions.arrow(["title", "body_html"]).slice(0, 5_000).to_pylist()))
    command = [sys.executable, "-c", "from dupq.cli import command; command()", "serve", "--run", run.uri]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        port = int(re.findall(r":(\d+)/", server.stdout.readline())[0])
        first, _ = asked(port, next(targets))
        figures = {
            "questions": run.metrics["questions"],
            "load_average": round(os.getloadavg()[0], 1),  # of other work too
            "first_seconds": round(first, 1),
            "by_connections": {
                count: measured(server.pid, port, targets, count, seconds) for count in options.connections
            },
            "peak_gb": round(max(used(process)[0] for process in family(server.pid)), 2),
        }
        server.terminate()
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def questions(rows: list[dict[str, str]]) -> list[str]:
    """What is asked."""
    targets = []
    for row in rows:
        words = html_to_text(row["body_html"], "removed").split()[:WORDS]
        text = " ".join(word for place, word in enumerate(words) if place % 3)
        targets.append("/similar?" + urllib.parse.urlencode({"title": row["title"], "text": text}))
    return targets


def asked(port: int, target: str) -> tuple[float, int]:
    """The seconds that an answer takes, and its status."""
    start, connection = time.perf_counter(), http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", target)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return time.perf_counter() - start, answer.status


def measured(server: int, port: int, targets: Iterator[str], connections: int, seconds: float) -> dict[str, float]:
    """What so many connections get."""
    end = time.perf_counter() + seconds

    def ask_on(_: int) -> list[tuple[float, int]]:
        answers = []
        while time.perf_counter() < end:
            answers.append(asked(port, next(targets)))
        return answers

    start, before = time.perf_counter(), sum(used(process)[1] for process in family(server))
    with ThreadPoolExecutor(connections) as threads:
        answers = [answer for own in threads.map(ask_on, range(connections)) for answer in own]
    took = sorted(second for second, _ in answers)
    return {
        "cpu_ms": round(1_000 * (sum(used(process)[1] for process in family(server)) - before) / len(answers)),
        "per_second": round(len(answers) / (time.perf_counter() - start), 1),
        "median_ms": round(1_000 * statistics.median(took)),
        "p99_ms": round(1_000 * took[int(0.99 * len(took))]),
        "refused": sum(status != 200 for _, status in answers),
    }


def family(process: int) -> list[int]:
    """A process and its children."""
    return [process, *map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]


def used(process: int) -> tuple[float, float]:
    """The most memory that a process has had, in GB, and its CPU seconds."""
    [kilobytes] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(kilobytes) / 1e6, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
