"""Everything once, with the libraries of this interpreter: the sample from dump to report, and the Python API.

    python tests/anywhere/whole.py FOLDER

The last line is JSON: what must not depend on libraries (hashes of the run's pairs and clusters, without the figures
that a library may round otherwise), and their versions.
"""

import hashlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import dupq

JOB = Path(__file__).parents[2] / "jobs" / "from_dump.py"
EPOCHS = ("training.epochs=1", "title_body.epochs=1", "word_vectors.epochs=1")
TITLES = ["How do I bake bread?", "how do I bake bread", "Where is my bicycle?", "Where has my bicycle gone?"]


def from_dump(folder: Path) -> str:
    """The archive and the folder of runs below `folder`."""
    dump, output = folder / "dump", folder / "out"
    settings = [word for epochs in EPOCHS for word in ("--set", epochs)]
    subprocess.run([sys.executable, "-m", "examples.sample", dump, "--questions", "300"], check=True)
    given = ["--dump", dump, "--output", output, "--preset", "dupq", "--truth", dump / "truth.tsv", *settings]
    subprocess.run([sys.executable, JOB, *given], check=True)
    assert (output / "runs").is_dir()
    return str(output / "runs")


def api(runs: str) -> dict[str, str]:
    """Read the run in every way, and find duplicates without one; the hashes of what was decided."""
    run = dupq.open_run(runs)
    assert Path(run.uri, "report.html").stat().st_size > 100_000
    pairs, clusters = run.pairs.arrow(), run.clusters.arrow()
    assert len(run.clusters) == len(clusters) == 300
    first = run.pairs.arrow(filter=[("joined", "=", True)]).to_pylist()[0]
    left, right = (f"{first[f'site_{end}']}/{first[f'question_id_{end}']}" for end in ("left", "right"))
    assert len(run.cluster_of(left).questions) > 1
    explained = run.explain(left, right)
    assert explained.edges.num_rows
    assert explained.weighed.score > 0
    assert len(run.similar("How do I bake bread?", k=3)) >= 3
    assert len(run.at(precision=0.5).clusters) > 0
    assert len(run.review) > 0
    for frame in (run.pairs.pandas, run.pairs.polars, run.pairs.duckdb):
        assert len(frame(["probability"])) == len(pairs)
    assert len(dupq.open_runs(runs)) == 1
    assert dupq.find_duplicates(TITLES).groups() == [[0, 1]]
    assert dupq.find_duplicates({"title": TITLES, "body": TITLES}, language="german").groups() == [[0, 1]]
    keys = [column for column in pairs.column_names if column.startswith(("site", "question_id"))]
    shown = {"pairs": pairs.select([*keys, "source", "joined"]), "clusters": clusters}
    return {
        name: hashlib.sha256(json.dumps(table.to_pylist(), default=str).encode()).hexdigest()[:16]
        for name, table in shown.items()
    }


if __name__ == "__main__":
    found = api(from_dump(Path(sys.argv[1])))
    versions = {name: importlib.metadata.version(name) for name in ("pyarrow", "numpy", "torch")}
    print(json.dumps({**found, **versions}))
