"""A wrong argument is answered before Ray and torch are loaded, which take longer than all that is looked at."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import fabricated_run
import pyarrow as pa
import pytest
from fabricated_run import CS

from dupq import storage
from dupq.settings import config
from dupq.tables import LINKS


class Case(NamedTuple):
    """`arguments`, with {world} for the folder of the world; the exit code, and what the line says."""

    arguments: str
    said: str
    code: int = 1


WEB = "https://archive.org/download/stackexchange/cs.7z"
INGEST = "ingest --dump {world}/dump --output {world}/out"
CSV = "ingest --dump {world}/faq.csv --output {world}/out --site faq"
TRAIN = "train --questions {world}/questions --links {world}/links --output {world}/out"
DEDUP = "dedup --questions {world}/questions --encoder {world}/encoder --output {world}/out"
EVALUATE = "evaluate --questions {world}/questions --links {world}/links --output {world}/out"
FROM_DUMP = "from-dump --dump {world}/dump --output {world}/out"
EXPORT = "export --to csv --output {world}/out --run"
WITH_OUTPUT = (INGEST, TRAIN, DEDUP, EVALUATE, FROM_DUMP)
HEADLINE = "faq.csv: column 'headline' is missing; its columns are 'id', 'title'"
NEEDS = "; download it first: curl -LO " + WEB

CASES = [
    *(Case(f"{job} --nothing", "--nothing", 2) for job in WITH_OUTPUT),
    *(Case(f"{job} --output /proc/foo", "/proc: nothing can be written here", 5) for job in WITH_OUTPUT),
    *(Case(f"{job} --output {{world}}/faq.csv/out", "faq.csv: a file; a folder expected", 5) for job in WITH_OUTPUT),
    *(Case(f"{job} --output {WEB}", NEEDS, 2) for job in WITH_OUTPUT),
    *(Case(f"{job} --questions {{world}}/no", "no: no question tables here") for job in (TRAIN, DEDUP, EVALUATE)),
    *(
        Case(f"{job} --questions {{world}}", "give its questions: {world}/questions")
        for job in (TRAIN, DEDUP, EVALUATE)
    ),
    *(Case(f"{job} --links {{world}}", "give its links: {world}/links") for job in (TRAIN, DEDUP, EVALUATE)),
    *(Case(f"{job} --encoder {{world}}/no", "train one with dupq train") for job in (DEDUP, EVALUATE)),
    *(Case(f"{job} --truth {{world}}/no.tsv", "no.tsv: no such file") for job in (DEDUP, FROM_DUMP)),
    *(Case(f"{job} --reranker /no", "--reranker /no: neither the folder") for job in (DEDUP, FROM_DUMP)),
    *(Case(f"{job} --dump {WEB}", NEEDS, 2) for job in (INGEST, FROM_DUMP)),
    *(Case(f"{job} --dump {{world}}/faq.csv --title headline", HEADLINE) for job in (INGEST, FROM_DUMP)),
    *(Case(f"{job} --dump {{world}}/faq.parquet", "which column is the question?") for job in (INGEST, FROM_DUMP)),
    Case(f"{INGEST} --dump hdfs://bucket/cs.7z", "hdfs: is not read", 2),
    Case("from-dump", "which dump or table?", 2),
    Case("from-dump {world}/faq.csv --title headline", HEADLINE),
    Case(f"{CSV} --title title --dump {{world}}/faq.parquet", "faq.parquet: column 'title' is missing"),
    Case(f"{TRAIN} --set word_vectors.file=/no", "word_vectors.file=/no: no such file"),
    Case(f"{DEDUP} --previous {{world}}/no", "no finished run"),
    Case(f"{EVALUATE} --table hazem-1 --pair-set {{world}}/no", "--pair-set {world}/no"),
    *(Case(f"{job} --run {{world}}", "no run is here; give {world}/runs") for job in ("report", EXPORT[:-6], "serve")),
    *(Case(f"{job} --run {WEB}", NEEDS, 2) for job in ("report", EXPORT[:-6], "serve", "status")),
    Case(f"{EXPORT} {{world}}/runs --output {{world}}/dump", "dump: exists already"),
    Case("plan --questions 24e6", "--run", 2),
    Case("plan --questions 24e6 --run {world}", "no run is here"),
    *(Case(f"{job} --output {{world}}/dump", "give the --output of dupq dedup") for job in ("runs", "prune")),
]

_EACH = """
import contextlib, io, json, sys
from dupq.cli import main

for arguments in json.load(sys.stdin):
    code, told = None, io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            main(arguments)
    except SystemExit as ended:
        code = ended.code
    loaded = sorted({"ray", "torch"} & set(sys.modules))
    print(json.dumps([code, told.getvalue(), loaded]))
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arguments")
    fabricated_run.build_run(str(folder))
    links = pa.Table.from_pylist([{"question_id": 2, "related_id": 1, "link_type": "duplicate"}], LINKS)
    storage.write_table(str(folder / "links" / f"site={CS}" / "part-00000.parquet"), links, LINKS)
    storage.write_json(str(folder / "manifest.json"), {"sites": {}})  # of the archive, as ingest leaves it
    described = {
        "format": 4,
        "settings": config.to_dict(config.load()),
        "fingerprint": "none",
        "metrics": {},
        "measure": {"kind": "cosine", "dense": 1.0, "lexical": 0.0},
        "pair_threshold": 0.5,
        "fitness": {"questions": 100, "unknown_words": 0.1, "bodies_found": 0.9},
    }
    storage.write_json(str(folder / "encoder" / "encoder.json"), described)
    posts = '<posts>\n  <row Id="1" PostTypeId="1" Title="How to bake" />\n</posts>\n'
    storage.write_bytes(str(folder / "dump" / "bread.example.com" / "Posts.xml"), posts.encode())
    (folder / "faq.csv").write_text("id,title\n1,How to bake\n")
    (folder / "faq.tsv.gz").write_text("no gzip")
    storage.write_table(str(folder / "faq.parquet"), links.select(["link_type"]), pa.schema([LINKS.field("link_type")]))
    return folder


def test_a_wrong_argument_is_answered_without_ray_and_torch(world: Path) -> None:
    given = [[part.replace("{world}", str(world)) for part in case.arguments.split(" ")] for case in CASES]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    ended = subprocess.run(
        [sys.executable, "-c", _EACH],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    wrong = []
    for case, (code, told, loaded) in zip(CASES, found, strict=True):
        is_line = told.startswith("error: ") and told.count("\n") == 1
        if not is_line or code != case.code or case.said.replace("{world}", str(world)) not in told or loaded:
            wrong.append((case.arguments, code, told, loaded))
    assert wrong == []
    assert not (world / "out").exists()
