"""A wrong argument is answered before Ray and torch are loaded, which take longer than all that is looked at."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_inputs.world import build_world

from dupq import storage


class Case(NamedTuple):
    """`arguments`, with {world} for the folder of the world; the exit code, and what the line says."""

    arguments: str
    said: str
    code: int = 1


WEB = "https://archive.org/download/stackexchange/cs.7z"
INGEST = "ingest --dump {world}/dump --output {world}/out"
TRAIN = "train --questions {world}/questions --links {world}/links --output {world}/out"
DEDUP = "dedup --questions {world}/questions --encoder {world}/encoder --output {world}/out"
EVALUATE = "evaluate --questions {world}/questions --links {world}/links --output {world}/out"
FROM_DUMP = "from-dump --dump {world}/dump --output {world}/out"
EXPORT = "export --to csv --output {world}/out --run"
WITH_OUTPUT = (INGEST, TRAIN, DEDUP, EVALUATE, FROM_DUMP)
HEADLINE = "table.csv: column 'headline' is missing; its columns are 'id', 'title'"
NEEDS = "; download it first: curl -LO " + WEB

# of each job one, and what tests/bad_inputs has not
CASES = [
    *(Case(f"{job} --nothing", "--nothing", 2) for job in WITH_OUTPUT),
    *(Case(f"{job} --output {WEB}", NEEDS, 2) for job in WITH_OUTPUT),
    Case(f"{INGEST} --output /proc/foo", "/proc: nothing can be written here", 5),
    Case(f"{TRAIN} --questions {{world}}", "give its questions: {world}/questions"),
    Case(f"{DEDUP} --links {{world}}", "give its links: {world}/links"),
    Case(f"{EVALUATE} --encoder {{world}}/no", "train one with dupq train"),
    *(Case(f"{job} --reranker /no", "--reranker /no: neither the folder") for job in (DEDUP, FROM_DUMP)),
    *(Case(f"{job} --dump {WEB}", NEEDS, 2) for job in (INGEST, FROM_DUMP)),
    *(Case(f"{job} --dump {{world}}/table.csv --title headline", HEADLINE) for job in (INGEST, FROM_DUMP)),
    Case(f"{INGEST} --dump {{world}}/faq.parquet", "which column is the question?"),
    Case(f"{INGEST} --dump hdfs://bucket/cs.7z", "hdfs: is not read", 2),
    Case("from-dump", "which dump or table?", 2),
    Case(f"{DEDUP} --previous {{world}}/no", "no finished run"),
    Case(f"{EVALUATE} --table hazem-1 --pair-set {{world}}/no", "--pair-set {world}/no"),
    *(Case(f"{job} --run {{world}}", "no run is here; give {world}/runs") for job in ("report", EXPORT[:-6], "serve")),
    *(Case(f"{job} --run {WEB}", NEEDS, 2) for job in ("report", "serve", "status")),
    Case(f"{EXPORT} {{world}}/runs --output {{world}}/dump", "dump: exists already"),
    Case("plan --questions 24e6", "--run", 2),
    Case("prune --output {world}/dump", "give the --output of dupq dedup"),
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
    build_world(folder)
    storage.write_json(str(folder / "manifest.json"), {"sites": {}})  # of the archive, as ingest leaves it
    pq.write_table(pa.table({"link_type": ["duplicate"]}), folder / "faq.parquet")
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
