"""How fast ingest reads a big Posts.xml, and in how much memory, against 7zz and lxml in the same run.

    python benchmarks/ingest.py [--quick] [--json FILE]

Three questions: what reading an archive costs beyond unpacking it (the wall time of ingest over that of
`7zz e -so FILE > /dev/null`, both with two cores), how fast plain XML is read on one core (over lxml's iterparse,
which gets every row's attributes and throws them away, while ingest also writes its tables), and how much faster
on two. Ray is up and its workers are warm, as on a cluster at night: a small dump is ingested first; `start_s`
says what that start took. Each figure is the median of several runs, peers in turns. Memory is the largest
process (resident at its peak, memory shared with others included) of all that take part, unpacker included.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from big_archive import parse_size, write_archive

CORES = sorted(os.sched_getaffinity(0))[:2]
SITE = "big.example.com"
MEMORY_SECONDS = 0.5


def main() -> None:
    """Make the archives, measure, print a table, write the JSON."""
    options = arguments()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="dupq-benchmark-"))
    try:
        figures = measure(folder, options)
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    show(figures)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="100 MB and 200 MB, fast compression, one run each")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--size", default="1GB", help="of the Posts.xml that is timed (default: 1GB)")
    parser.add_argument("--large", default="4GB", help="of the one whose memory is measured too (default: 4GB)")
    parser.add_argument("--level", type=int, default=5, help="of 7zz's compression of the first (default: 5)")
    parser.add_argument("--runs", type=int, default=3, help="of each (default: 3)")
    parser.add_argument(
        "--folder", help="keeps the archives, and takes those that are there (default: a temporary one)"
    )
    parser.add_argument("--child", nargs=3, metavar=("CORES", "RUNS", "DUMP"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        cores, runs, dump = options.child
        child(int(cores), int(runs), Path(dump))
        sys.exit()
    if options.quick:
        options.size, options.large, options.level, options.runs = "100MB", "200MB", 1, 1
    return options


def measure(folder: Path, options: argparse.Namespace) -> dict:
    """All figures."""
    xml, archive = dump(folder, options.size, [f"-mx={options.level}"])
    # only its memory counts, so fast compression will do; the dictionary, which unpacking holds, is as large
    large_xml, large_archive = dump(folder, options.large, ["-mx=1", "-md=32m"])
    size, large_size = xml.stat().st_size / 1e6, large_xml.stat().st_size / 1e6
    ours, unpacking = in_turns(options.runs, archive)
    one, lxml = one_core(options.runs, xml)
    two = ingested(2, options.runs, xml)
    large = [ingested(2, 1, large_archive), ingested(2, 1, large_xml)]
    archive_s, seven_zip_s = (statistics.median(times) for times in (ours["seconds"], unpacking))
    one_s, two_s, lxml_s = (statistics.median(times) for times in (one["seconds"], two["seconds"], lxml))
    return {
        "archive_wall_vs_7zz": round(archive_s / seven_zip_s, 3),
        "xml_speed_vs_lxml": round(lxml_s / one_s, 3),
        "xml_speedup_two_cores": round(one_s / two_s, 3),
        "peak_memory_mb": round(max(run["peak_mb"] for run in (ours, one, two, *large))),
        "large_archive_peak_memory_mb": round(large[0]["peak_mb"]),
        "large_xml_peak_memory_mb": round(large[1]["peak_mb"]),
        "archive_peak_memory_mb": round(ours["peak_mb"]),
        "xml_peak_memory_mb": round(max(one["peak_mb"], two["peak_mb"])),
        "xml_mb": round(size),
        "archive_mb": round(archive.stat().st_size / 1e6),
        "archive_s": round(archive_s, 2),
        "seven_zip_s": round(seven_zip_s, 2),
        "xml_one_core_mb_s": round(size / one_s),
        "xml_two_cores_mb_s": round(size / two_s),
        "lxml_mb_s": round(size / lxml_s),
        "large_xml_mb": round(large_size),
        "large_archive_mb_s": round(large_size / large[0]["seconds"][0]),
        "large_xml_mb_s": round(large_size / large[1]["seconds"][0]),
        "start_s": round(ours["start_s"], 2),
        "questions": ours["questions"],
        "runs": options.runs,
        "cores": len(CORES),
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


def dump(folder: Path, size: str, compression: list[str]) -> tuple[Path, Path]:
    """A Posts.xml of about that size and the archive of it, made once; its PostLinks.xml is left out of both."""
    site = folder / size / SITE
    archive = folder / size / f"{SITE}-Posts.7z"
    if not archive.exists():
        say(f"making {size} of questions")
        write_archive(folder / size, size=parse_size(size), seed=1, site=SITE)
        (site / "PostLinks.xml").unlink(missing_ok=True)
        unfinished = archive.with_suffix(".part")
        say(f"packing {size} ({' '.join(compression)})")
        command = ["7zz", "a", "-t7z", "-bso0", "-bsp0", *compression, str(unfinished), str(site / "Posts.xml")]
        subprocess.run(command, check=True)
        unfinished.rename(archive)
    return site / "Posts.xml", archive


def in_turns(runs: int, archive: Path) -> tuple[dict, list[float]]:
    """Ingest and 7zz of the same archive, in turns in one process."""
    say("ingest of the archive and 7zz, in turns")
    result = run_child(2, runs, archive)
    return result, result["peer"]


def one_core(runs: int, xml: Path) -> tuple[dict, list[float]]:
    """Ingest and lxml on one core, in turns."""
    say("ingest of the XML on one core and lxml, in turns")
    result = run_child(1, runs, xml)
    return result, result["peer"]


def ingested(cores: int, runs: int, dump_file: Path) -> dict:
    say(f"ingest of {dump_file.relative_to(dump_file.parents[2])}, cores: {cores}")
    return run_child(cores, -runs, dump_file)


def run_child(cores: int, runs: int, dump_file: Path) -> dict:
    """What `child` prints, in a process of its own with an own Ray; with negative `runs` the peer is left out."""
    command = [sys.executable, __file__, "--child", str(cores), str(runs), str(dump_file)]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def child(cores: int, runs: int, dump_file: Path) -> None:
    """Ingest `dump_file` several times on so many cores, and its peer in turns; prints the figures as JSON."""
    os.sched_setaffinity(0, set(CORES[:cores]))
    peer = {".7z": unpack, ".xml": iterparse}[dump_file.suffix]
    figures: dict = {"seconds": [], "peer": []}
    with tempfile.TemporaryDirectory(prefix="dupq-benchmark-") as name, sampled_memory() as memory:
        folder = Path(name)
        figures["start_s"] = timed(lambda: warm_up(folder, cores))
        for number in range(abs(runs)):
            if runs > 0:
                figures["peer"].append(timed(lambda: peer(dump_file)))
            output = folder / f"archive-{number}"
            figures["seconds"].append(timed(lambda output=output: ingest(dump_file, output)))
            manifest = json.loads((output / "manifest.json").read_text())
            figures["questions"] = manifest["sites"][SITE]["questions"]
            shutil.rmtree(output)
    print(json.dumps({**figures, **memory}))


def warm_up(folder: Path, cores: int) -> None:
    """Start Ray, and its workers by a small ingest, of as many files as there are cores."""
    import ray

    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init(
        address="local",
        num_cpus=cores,
        include_dashboard=False,
        object_store_memory=300_000_000,
        log_to_driver=False,
        logging_level="ERROR",
    )
    for number in range(2 * cores):
        write_archive(folder / "warm", questions=2_000, seed=number, site=f"site{number}")
    ingest(folder / "warm", folder / "warm-archive")


def ingest(dump_file: Path, output: Path) -> None:
    """The ingest job, but for the start of Ray."""
    from dupq.pipelines.ingest import IngestJob
    from dupq.pipelines.ingest import ingest as run

    run(IngestJob((str(dump_file),), str(output)))


def unpack(archive: Path) -> None:
    """`7zz e -so FILE > /dev/null`."""
    subprocess.run(["7zz", "e", "-so", str(archive)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def iterparse(xml: Path) -> None:
    """Every row's attributes, in bounded memory."""
    from lxml import etree

    for _, row in etree.iterparse(str(xml), tag="row"):
        dict(row.attrib)
        row.clear()
        while row.getprevious() is not None:
            del row.getparent()[0]


def timed(work: Callable[[], None]) -> float:
    """Seconds of wall time; what `work` prints is left out."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        start = time.monotonic()
        work()
        return time.monotonic() - start


@contextmanager
def sampled_memory() -> Iterator[dict]:
    """`peak_mb` of the largest process below this one, itself included."""
    peaks = {"peak_mb": 0.0}
    done = threading.Event()

    def sample() -> None:
        while not done.wait(MEMORY_SECONDS):
            peaks["peak_mb"] = max([peaks["peak_mb"], *family()])

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def family() -> Iterator[float]:
    """The resident memory in MB, at its peak so far, of this process and of each of its descendants."""
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:  # it has ended
            continue
        yield next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def show(figures: dict) -> None:
    """The figures as a table."""
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:{width}}  {value}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
