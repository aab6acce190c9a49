"""The table of bad inputs: the job, what is damaged or given, the exit code, and words of the one line that says so."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from fabricated_run import CS
from world import (
    DELETE,
    PAIRS,
    REVIEW,
    TRUTH,
    Damage,
    content,
    cut,
    entry,
    removed,
    table,
    weights,
    with_values,
    without,
)

Damages = list[tuple[str, str | tuple[str, ...], Damage]]  # each with its name and words of the line


class Case(NamedTuple):
    """`arguments` go behind those of `JOBS`, and of two the last one counts; {world} is the world's folder."""

    job: str
    name: str
    said: str | tuple[str, ...]
    arguments: str | tuple[str, ...] = ()
    damage: Damage | None = None
    code: int = 1


OUT = ("--output", "{world}/out")
QUESTIONS = ("--questions", "{world}/questions")
JOBS = {
    "ingest": ("--dump", "{world}/dump", *OUT),
    "train": (*QUESTIONS, "--links", "{world}/links", *OUT, "--preset", "bogdanova-max"),
    "dedup": (*QUESTIONS, "--encoder", "{world}/encoder", *OUT),
    "evaluate": (*QUESTIONS, "--links", "{world}/links", *OUT),
    "report": ("--run", "{world}/runs"),
    "export": ("--run", "{world}/runs", "--to", "csv", "--output", "{world}/exported"),
    "from-dump": ("--dump", "{world}/dump", *OUT),
    "runs": ("--output", "{world}/runs"),
    "prune": ("--output", "{world}/runs"),
    "status": ("--run", "{world}/runs"),
}

ON_RAY = "ingest train dedup evaluate from-dump"
OF_RUNS = (("runs", "--output"), ("prune", "--output"), ("status", "--run"))
PREVIOUS = ("--previous", "{world}/runs")
SHARD = f"questions/site={CS}/part-00000.parquet"
SITE = ("--site", "a")
_SKIP_SITE = [part for n in (0, 1) for part in ("--skip-shard", f"site={CS}/part-0000{n}.parquet")]
LINKS = f"links/site={CS}/part-00000.parquet"
CLUSTERS = "runs/fabricated/clusters/part-00000.parquet"
MARK = "out/ingest/bread.example.com.json"
NESTED = "[" * 100_000 + "]" * 100_000
LONG = "x" * 300
_TABLE = ("--dump={world}/table.csv",)


def _everywhere(jobs: str, name: str, said: str, arguments: tuple[str, ...], code: int = 1) -> list[Case]:
    return [Case(job, name, said, arguments, code=code) for job in jobs.split()]


def _damaged(jobs: str, damages: Damages, *arguments: str) -> list[Case]:
    return [Case(job, name, said, arguments, damage) for job in jobs.split() for name, said, damage in damages]


def _settings(job: str, assignments: list[tuple[str, str]], *arguments: str) -> list[Case]:
    found = []
    for assignment, said in assignments:
        name = assignment.partition("=")[0]
        found.append(Case(job, assignment[:60], (name, said), (*arguments, "--set", assignment), code=2))
    return found


_NO_URIS = [
    ("no place", "names no file or folder", ""),
    ("a place of a blank", "names no file or folder", " "),
    ("a bucket without a name", "no bucket is named", "s3://"),
    ("a line break in a path", "a\\nb", "a\nb"),
    ("a path that is not UTF-8", "cannot be shown", "\udcff"),
]
ONLY = f"only/site={CS}/part-00000.parquet"


ARGUMENTS = [
    *_everywhere("train dedup evaluate report export", "a stray word", "unrecognized", ("stray",), 2),
    *_everywhere(ON_RAY, "no output", "--output: ''", ("--output", ""), 2),
    *_everywhere("train dedup evaluate", "a line break in a path", "a\\nb", ("--questions", "a\nb"), 2),
    *_everywhere("ingest from-dump", "a dump's path with a zero byte", "--dump", ("--dump", "a\0b"), 2),
    *_everywhere(ON_RAY, "a setting without a value", "section.name", ("--set", "x"), 2),
    *_everywhere(ON_RAY, "an output that is a file", "truth.tsv: a file; a", ("--output", "{world}/truth.tsv"), 5),
    *_everywhere("report export", "a path that is no run", "no run is here", ("--run", "{world}/questions")),
    Case("export", "no such format", "--to: invalid choice: 'svg'", ("--to", "svg"), code=2),
    Case("export", "an output that is there", "out: exists already", OUT),
    Case("export", "an output inside the run", "is inside the run", ("--output", "{world}/runs/fabricated/csv")),
    Case("export", "a map of a run without embeddings", "has no embeddings", ("--to", "embedding-atlas")),
    *_everywhere("dedup from-dump", "a judge required, but none named", "no address", ("--judge-required",), 2),
    *_everywhere("train dedup evaluate from-dump", "GPUs in words", "--gpus: 'two'", ("--gpus", "two"), 2),
    Case("train", "fewer GPUs than workers", "each of 2 workers", ("--gpus", "1", "--workers", "2"), code=2),
    Case("train", "no workers", "--workers 0", ("--workers", "0"), code=2),
    Case("dedup", "a recall that is no number", "--min-recall nan", ("--min-recall", "nan"), code=2),
    Case("dedup", "a negative cluster", "--max-cluster -1", ("--max-cluster=-1",), code=2),
    Case("dedup", "a change since nothing", "name it with --previous", ("--max-change", "0.5"), code=2),
    Case("dedup", "rows as nothing had them", "name it with --previous", ("--min-rows-share", "0.5"), code=2),
    *(
        Case("dedup", f"a shard to skip: {path}", f"--skip-shard {path}: no such file", ("--skip-shard", path))
        for path in (f"../{SHARD}", "")
    ),
    Case(
        "dedup",
        "a site whose shards are skipped",
        ("neighbours.sites", f"there are no questions of {CS}"),
        (*_SKIP_SITE, "--set", f"neighbours.sites={CS}"),
        code=2,
    ),
    Case(
        "dedup",
        "all shards skipped",
        "--skip-shard: no shard of",
        ("--questions", "{world}/only", "--skip-shard", ONLY.removeprefix("only/")),
        lambda world: content(ONLY, (world / SHARD).read_bytes())(world),
    ),
    *_everywhere(ON_RAY, "lines of another kind", "--log", ("--log", "xml"), 2),
    # one that is not there ends the process at once, so tests/job/test_cluster.py has it
    *_everywhere(ON_RAY, "a Ray by a name", "--ray 'nowhere': no address", ("--ray", "nowhere"), 2),
    Case("dedup", "links used somehow", "--known-links", ("--known-links", "somehow"), code=2),
    Case("dedup", "a scope of another name", "neighbours.scope", ("--scope", "component"), code=2),
    Case("dedup", "a scope that ingest did not keep", "--scope column: no question", ("--scope", "column"), code=2),
    Case("dedup", "a window of no days", "--window", ("--window", "0"), code=2),
    *(
        Case("dedup", f"{option} without dates", f"{option}: no question", (option, *days), code=2)
        for option, *days in (("--window", "7"), ("--earlier",))
    ),
    *_everywhere("ingest from-dump", "a scope that no column is", "'x' is missing", (*_TABLE, "--scope=x")),
    Case("ingest", "a share that is no number", "maximum_reject_share", ("--max-reject-share", "nan"), code=2),
]

RUNS_BELOW = [
    *(Case(job, name, said, (option, given), code=2) for job, option in OF_RUNS for name, said, given in _NO_URIS),
    *(Case(job, "a stray word", "unrecognized", ("stray",), code=2) for job, _ in OF_RUNS),
    *(Case(job, "lines as JSON", "--log", ("--log", "json"), code=2) for job, _ in OF_RUNS),
    *(Case(job, "no run in it", "questions: no run", (option, "{world}/questions")) for job, option in OF_RUNS),
    *(Case(job, "no folder", "nowhere: no run", (option, "{world}/nowhere")) for job, option in OF_RUNS),
    *(Case(job, "a file", "truth.tsv: a file; a folder of runs", (opt, "{world}/truth.tsv")) for job, opt in OF_RUNS),
    *(Case("prune", f"--keep {count}", "--keep", (f"--keep={count}",), code=2) for count in ("0", "1.5", "")),
    Case("prune", "--keep-monthly -1", "--keep-monthly", ("--keep-monthly=-1",), code=2),
    Case("prune", "an encoder without a name", "--encoder", ("--encoder", ""), code=2),
]

_ARCHIVES: Damages = [("no archive", "a.7z", content("dump/a.7z", b"this is no archive" * 100))]
_NO_PARQUET: Damages = [("no Parquet", "a.parquet", content("dump/a.parquet", b"PAR1" * 9))]
_ALONE: Damages = [("links alone", "PostLinks.xml", content("alone/x.example.com/PostLinks.xml", "<postlinks/>"))]
_MARKS: Damages = [
    ("a mark that is a list", "bread.example.com.json: it holds []", content(MARK, "[]")),
    ("a mark without counts", "'counts' is missing", content(MARK, '{"made_from": {}, "tables": {}}')),
]
DUMPS = [
    *_everywhere("ingest from-dump", "a missing dump", "no.7z: no such file or folder", ("--dump", "{world}/no.7z")),
    *_everywhere("ingest from-dump", "a name of 300 characters", LONG, ("--dump", "{world}/" + LONG)),
    *_everywhere("ingest from-dump", "a folder without a dump", "its fields are", ("--dump", "{world}/encoder")),
    *_everywhere("ingest from-dump", "no such column", "'x' is missing", (*_TABLE, "--title=x")),
    *_damaged("ingest from-dump", _ARCHIVES, "--dump", "{world}/dump/a.7z"),
    *_damaged("ingest", _NO_PARQUET, "--dump", "{world}/dump/a.parquet"),
    *_damaged("ingest", _ALONE, "--dump", "{world}/alone"),
    Case("ingest", "a name of no site", "site", ("--site", "../up"), code=1),
    *_damaged("ingest from-dump", _MARKS),
]

_TABLES: Damages = [
    ("no questions", "questions: no question tables here", removed("questions")),
    ("questions that are a file", "questions: a file; the folder", content("questions", "x")),
    ("questions outside a site", "is in no site=NAME folder", content("questions/part.parquet", "x")),
    ("a question file of text", f"{SHARD}: not a readable Parquet file", content(SHARD, "no table" * 9)),
    ("a question file cut short", f"{SHARD}: not a readable Parquet file", cut(SHARD)),
    ("questions without ids", f"{SHARD}: column 'question_id' is missing", without(SHARD, "question_id")),
    ("titles that are numbers in lists", "column 'title'", with_values(SHARD, "title", [[1]], pa.list_(pa.int64()))),
    ("a question without an id", "'question_id' has 1 empty", with_values(SHARD, "question_id", [None])),
    ("a negative id", "question_id -5 is out of range", with_values(SHARD, "question_id", [-5])),
]
_LINKS: Damages = [
    ("no links", "links: no link tables here", removed("links")),
    ("links outside a site", "is in no site=NAME folder", content("links/part.parquet", "x")),
    ("a link file of text", f"{LINKS}: not a readable Parquet file", content(LINKS, "no table" * 9)),
    ("links without a type", f"{LINKS}: column 'link_type' is missing", without(LINKS, "link_type")),
    ("a link from nowhere", "'question_id' has 1 empty", with_values(LINKS, "question_id", [None])),
    ("a link to a negative id", "related_id -1 is out of range", with_values(LINKS, "related_id", [-1])),
]


def _emptied(folder: str) -> Damage:
    def damage(world: Path) -> None:
        for path in (world / folder).rglob("*.parquet"):
            table(str(path.relative_to(world)), lambda found: found.slice(0, 0))(world)

    return damage


TABLES = [
    *_damaged("train dedup evaluate", _TABLES),
    *_damaged("train evaluate", _LINKS),
    *_damaged("dedup", _LINKS, "--links", "{world}/links"),
    Case(
        "train",
        "links without rows",
        ("links: no links in the tables: preset bogdanova-max learns", "take one of the presets"),
        damage=_emptied("links"),
        code=2,
    ),
    *_damaged(
        "train dedup", [("a file of links", "links: a file;", content("links", "x"))], "--links", "{world}/links"
    ),
    *_damaged("train evaluate", [("no questions in tables", "no questions in the tables", _emptied("questions"))]),
    Case("dedup", "questions without tags", "column 'tags' is missing", (), without(SHARD, "tags")),
    *_everywhere("train dedup evaluate", "questions at 300 characters", LONG, ("--questions", "{world}/" + LONG)),
]

_HEADING = "site\tquestion_id\trelated_id\tkind\n"
_LONG_ID = f"{0:020}{'9' * 30}"
_TRUTHS: Damages = [
    ("no truth", "truth.tsv: no such file", removed("truth.tsv")),
    ("truth of nothing", "truth.tsv, line 1: no column", content("truth.tsv", "")),
    ("truth without pairs", "truth.tsv: no planted pairs", content("truth.tsv", _HEADING)),
    ("binary truth", "truth.tsv: not a text in UTF-8", content("truth.tsv", b"\xff\xfe\0\1")),
    ("zeros before nines", "truth.tsv, line 4", content("truth.tsv", f"{TRUTH}{CS}\t1\t{_LONG_ID}\tcopy\n")),
    ("an id in words", "truth.tsv, line 4: 'one'", content("truth.tsv", f"{TRUTH}{CS}\tone\t2\tcopy\n")),
]
_PAIR_FILES: Damages = [
    ("pairs of nothing", "pairs.tsv: no pairs in it", content("pairs.tsv", "")),
    ("a heading without pairs", "pairs.tsv: no pairs in it", content("pairs.tsv", "left\tright\tlabel\n")),
    ("a label that is none", "pairs.tsv, line 4: label '2'", content("pairs.tsv", f"{PAIRS}{CS}/1\t{CS}/5\t2\n")),
]
_REVIEWS: Damages = [
    ("no verdicts", "review.tsv: no such file", removed("review.tsv")),
    ("a verdict that is none", "line 4: verdict 'maybe'", content("review.tsv", f"{REVIEW}{CS}\t1\t{CS}\t4\tmaybe\n")),
]
_PRIORS: Damages = [
    ("no prior", "prior.json: no such file", removed("prior.json")),
    ("a prior that is a list", "prior.json: it holds []", content("prior.json", "[]")),
    ("a prior without spreads", "'slope_spread' is missing", entry("prior.json", "slope_spread", DELETE)),
    ("a prior of other features", "made for other features", entry("prior.json", "features", ["x"])),
    ("a prior that is not finite", "'centres.0' is nan", entry("prior.json", "centres", [float("nan")])),
    ("a prior that divides by 0", "'scales.0' is 0.0", entry("prior.json", "scales", [0.0])),
    ("a prior of few numbers", "made for other features", entry("prior.json", "centres", [1.0])),
    ("a prior without a tail", "'reranker.tail' is 0.0", entry("prior.json", "reranker.tail", 0.0)),
    ("a prior of other cosines", "was made for other", entry("prior.json", "reranker.features", ["cosine"])),
]
FILES = [
    *_damaged("dedup from-dump", _TRUTHS, "--truth", "{world}/truth.tsv"),
    Case("dedup", "truth that is a folder", "links: no such file", ("--truth", "{world}/links")),
    *_damaged("train", _PAIR_FILES, "--pairs", "{world}/pairs.tsv"),
    *_damaged("evaluate", _PAIR_FILES, "--links", "{world}/pairs.tsv"),
    *_everywhere("train", "pairs that are not there", "nowhere.tsv", ("--pairs", "{world}/nowhere.tsv")),
    *_damaged("dedup", _REVIEWS, "--verdicts", "{world}/review.tsv"),
    *_damaged("dedup", _PRIORS, "--set", "calibration.prior={world}/prior.json"),
]

ENCODER = "encoder/encoder.json"


def _set(name: str, place: int, value: float) -> Damage:
    def change(tensors: dict[str, np.ndarray]) -> None:
        tensors[name].flat[place] = value

    return weights(change)


_ENCODERS: Damages = [
    ("no encoder", "encoder: no encoder here", removed("encoder")),
    ("no weights", "model.safetensors: no such file", removed("encoder/model.safetensors")),
    ("no split", "split.parquet: no such file", removed("encoder/split.parquet")),
    ("a description that is no UTF-8", "encoder.json: not valid JSON", content(ENCODER, b'{"format": "\xff"}')),
    ("a deeply nested description", "encoder.json: not valid JSON", content(ENCODER, NESTED)),
    ("another format", "not an encoder of format", entry(ENCODER, "format", 99)),
    *(
        (f"a description without {name}", f"encoder.json: '{name}' is missing", entry(ENCODER, name, DELETE))
        for name in ("settings", "measure", "fingerprint")
    ),
    *(
        (f"{name} of {json.dumps(value)}", f"encoder.json: '{name}' is", entry(ENCODER, name, value))
        for name, value in [
            ("settings", []),
            ("measure.lexical", float("nan")),
            ("pair_threshold", float("inf")),
            ("fitness.unknown_words", None),
            ("fingerprint", 5),
        ]
    ),
    ("an unknown kind", "encoder.json: setting 'encoder.kind' is 'x'", entry(ENCODER, "settings.encoder.kind", "x")),
    ("an unknown setting", "setting 'text.colour'", entry(ENCODER, "settings.text.colour", "red")),
    ("another fingerprint", "are damaged or from different trainings", content("encoder/vocabulary.txt", "a\nb\n")),
    ("weights cut short", "are damaged or from different trainings", cut("encoder/model.safetensors")),
    ("a weight that is no number", ("words.weight", "not all finite"), _set("words.weight", 9, np.nan)),
]
_TEACHER: Damages = [("a teacher without fitness", "'fitness' is missing", entry(ENCODER, "fitness", DELETE))]
ENCODERS = [
    *_damaged("dedup", _ENCODERS),
    *_damaged("evaluate", _ENCODERS[:5] + _ENCODERS[-2:], "--encoder", "{world}/encoder"),
    *_damaged("train", _TEACHER, "--set", "teacher.encoder={world}/encoder"),
    Case("train", "no teacher", "no encoder here", ("--set", "teacher.encoder={world}/nowhere")),
    Case("train", "no file of vectors", "nowhere.bin: no such", ("--set", "word_vectors.file={world}/nowhere.bin")),
]

POINTER, METRICS, MANIFEST = (f"runs/{name}.json" for name in ("latest", "fabricated/metrics", "fabricated/manifest"))
_POINTERS: Damages = [
    ("a pointer that is a list", "latest.json: it holds []", content(POINTER, "[]")),
    ("a pointer to nothing", "latest.json: 'run_id' is missing", content(POINTER, "{}")),
    ("a pointer to elsewhere", "latest.json: 'run_id' is", content(POINTER, '{"run_id": "../../other"}')),
    ("a pointer to a run that is gone", "gone", content(POINTER, '{"run_id": "gone"}')),
]
_RUNS: Damages = [
    ("no metrics", "metrics.json: no such file", removed(METRICS)),
    ("metrics that are a list", "metrics.json: it holds []", content(METRICS, "[]")),
    ("questions in words", "metrics.json: 'questions' is 'many'", entry(METRICS, "questions", "many")),
    ("measures of links that are a number", "'links' is 3", entry(METRICS, "links", 3)),
    ("no clusters", "clusters: no such table", removed("runs/fabricated/clusters")),
    ("clusters without ids", "column 'cluster_id' is missing", without(CLUSTERS, "cluster_id")),
]
SUCCESS = "runs/fabricated/_SUCCESS"
_REPORTED: Damages = [
    ("clusters of text", "clusters", content(CLUSTERS, "x" * 99)),
    ("no manifest", "no run is here", removed(MANIFEST)),
    ("a manifest without inputs", "manifest.json: 'inputs' is missing", entry(MANIFEST, "inputs", DELETE)),
    ("a stage without a name", "'stages.0.name' is missing", entry(MANIFEST, "stages", [{}])),
    ("a run that is not finished", "not finished", removed(SUCCESS)),
    ("no pairs", "pairs: no such table", removed("runs/fabricated/pairs")),
]
RUNS = [
    *_damaged("dedup", [*_POINTERS, *_RUNS], "--previous", "{world}/runs"),
    *_damaged("report", _POINTERS),
    *_damaged("export", _POINTERS),
    *_damaged("report", [case for case in _RUNS if case[0] != "clusters without ids"]),
    *_damaged("report", _REPORTED),
    *_damaged(
        "dedup", [("an unfinished run before", "no finished run", removed(SUCCESS))], "--previous", "{world}/runs"
    ),
    Case("dedup", "no earlier run", "no finished run", ("--previous", "{world}/nowhere")),
]

SETTINGS = [
    *_settings(
        "dedup",
        [
            ("clusters.threshold=nan", "finite"),
            ("calibration.precision=80", "at most 1 expected (80 % is 0.8)"),
            ("neighbours.k=1" + "0" * 40, "at most 1,000"),
            ("neighbours.k=ten", "a whole number expected"),
            ("neighbours.method=ivf", "'neighbours' has no 'method'"),
            ("neighbours.sites=x.com", "there are no questions of x.com"),
            ("near_duplicates.permutations=1", "set more permutations"),
            ("text.code=kept", "fixed when the encoder was trained"),
        ],
    ),
    *_settings(
        "train",
        [
            ("word_vectors.dimensions=99999999", "at most 16,384"),
            ("encoder.kind=guess", "allowed"),
            ("training.learning_rate=inf", "finite"),
            ("word_vectors.algorithm=teacher", "'teacher.encoder' is empty"),
            (f"training.seed={1 << 32}", "at most"),
        ],
    ),
    *_settings("ingest", [("ingest.shard_rows=0", "at least 1"), ("text.code=kept", "not read by this job")]),
    *_settings("evaluate", [("text.code=gone", "allowed"), ("neighbours.k=5", "not read")]),
    *_settings("evaluate", [("text.code=kept", "fixed when the encoder was trained")], "--encoder", "{world}/encoder"),
    *_settings("from-dump", [("ingest.shard_rows=0", "at least 1"), ("encoder.units=5", "does not read it")]),
    Case("from-dump", "no prior", "nowhere.json: no such file", ("--set", "calibration.prior={world}/nowhere.json")),
]

CASES = [*ARGUMENTS, *RUNS_BELOW, *DUMPS, *TABLES, *FILES, *ENCODERS, *RUNS, *SETTINGS]
