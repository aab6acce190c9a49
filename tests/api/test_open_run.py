"""A run's tables, opened in a notebook: only what is used is imported and read."""

import math
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fabricated_run import BAD_SITE, COPIES, CS, LARGE, QUESTIONS, TITLES, TRAVEL, TRIPLE, build_run

import dupq
from dupq import storage, tables
from dupq.api.runs import Run
from dupq.errors import DupqError, StorageError
from dupq.runs.views import in_memory

HEAVY = ("torch", "ray", "numba", "pyarrow", "pandas", "numpy", "gensim")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return dupq.open_run(build_run(str(tmp_path)))


def test_importing_dupq_loads_nothing_heavy_and_reading_a_run_neither_torch_nor_ray(run: Run) -> None:
    code = f"""
import sys, dupq
print([name for name in {HEAVY} if name in sys.modules], dupq.__version__, "open_run" in dir(dupq))
run = dupq.open_run({run.uri!r})
run.pairs.arrow(), run.cluster_of("{CS}/31")
print([name for name in ("torch", "ray", "gensim") if name in sys.modules])"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == f"[] {dupq.__version__} True\n[]\n"


def test_a_table_is_what_its_files_hold(run: Run) -> None:
    files = storage.list_files(f"{run.uri}/pairs", ".parquet")
    whole = pa.concat_tables([storage.read_table(file.uri, tables.PAIRS) for file in files])
    assert run.pairs.arrow().equals(whole)
    assert pa.concat_tables(run.pairs.files()).equals(whole)
    assert len(run.pairs) == len(whole)
    assert run.pairs.pandas().equals(whole.to_pandas())


def test_columns_and_rows_are_chosen(run: Run) -> None:
    names = ["probability", "source"]
    expected = run.pairs.arrow().filter(pc.greater(run.pairs.arrow()["probability"], 0.9)).select(names)
    assert len(expected) < len(run.pairs)
    assert run.pairs.arrow(names, pc.field("probability") > 0.9).equals(expected)
    assert run.pairs.arrow(names, [("probability", ">", 0.9)]).equals(expected)
    sources = run.pairs.arrow(["source"])["source"].to_pylist()
    assert len(run.pairs.arrow(filter=[("source", "in", ["exact", "known_link"])])) == 2
    assert len(run.pairs.arrow(filter=[("source", "in", [])])) == 0
    assert len(run.pairs.arrow(filter=[("source", "not in", {"encoder"})])) == len(sources) - sources.count("encoder")


def test_files_of_other_columns_are_not_read(run: Run) -> None:
    table = run.questions.arrow(["question_id"], [("site", "=", TRAVEL)])
    assert table.num_columns == 1
    for file in storage.list_files(run.manifest["inputs"]["questions"], ".parquet"):
        if f"site={TRAVEL}" not in file.uri:
            storage.write_bytes(file.uri, b"damaged")  # would be an error if it were read
    assert run.questions.arrow(["question_id"], [("site", "=", TRAVEL)]).equals(table)
    with pytest.raises(DupqError, match="cannot be read"):
        run.questions.arrow(["question_id"])


def test_questions_have_their_sites(run: Run) -> None:
    rows = run.questions.arrow(["site", "question_id", "title"]).to_pylist()
    assert sorted((row["site"], row["question_id"]) for row in rows) == sorted(QUESTIONS)
    titles = {(row["site"], row["question_id"]): row["title"] for row in rows}
    assert titles[BAD_SITE, 1] == TITLES[BAD_SITE, 1]


@pytest.mark.parametrize("below", ["", "of a night"])
def test_the_questions_of_a_run_of_one_sites_folder_have_their_site_and_titles(run: Run, below: str) -> None:
    manifest = storage.read_json(f"{run.uri}/manifest.json")
    folder = Path(manifest["inputs"]["questions"], f"site={BAD_SITE}")
    for file in sorted(folder.iterdir()):
        storage.move(str(file), str(folder / below / file.name))
    manifest["inputs"]["questions"] = str(folder / below)
    storage.write_json(f"{run.uri}/manifest.json", manifest)
    one = dupq.open_run(run.uri)
    rows = one.questions.arrow(["question_id"], [("site", "=", BAD_SITE)])
    assert sorted(rows["question_id"].to_pylist()) == [1, 2, 3]
    assert one.titles([(BAD_SITE, 1), (BAD_SITE, 9), (CS, 1)]) == {(BAD_SITE, 1): TITLES[BAD_SITE, 1]}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"filter": "probability > 0.9"}, r"filter='probability > 0.9'; conditions expected, such as \[\(\"site_left"),
        ({"filter": [("probability", "=>", 0.9)]}, "conditions expected"),
        ({"filter": [("sure", ">", 0.9)]}, "no column 'sure'; it has site_left"),
        ({"columns": "probability"}, r"a list of names expected, such as \['probability'\]"),
    ],
)
def test_rows_and_columns_that_cannot_be_asked_for_are_one_line(run: Run, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(DupqError, match=f"^{re.escape(run.pairs.source)}: .*{said}.*$"):
        run.pairs.arrow(**asked)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_not_installed_is_named_with_the_extra(
    library: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    said = rf"(?i){library}, which is not installed; in dupq's checkout: pip install '.\[tables\]'"
    with pytest.raises(DupqError, match=said):
        getattr(run.pairs, library)()


def test_a_table_as_polars_and_as_a_duckdb_relation(run: Run) -> None:
    expected = len(run.pairs.arrow(filter=[("probability", ">", 0.9)]))
    assert run.pairs.polars(["probability"], [("probability", ">", 0.9)]).to_arrow().num_rows == expected
    assert run.pairs.duckdb().filter("probability > 0.9").count("*").fetchall()[0][0] == expected
    assert run.pairs.duckdb(["probability"]).columns == ["probability"]


def test_a_run_is_read_from_s3(s3: str) -> None:
    uri = build_run(storage.join(s3, "api"))
    run = dupq.open_run(storage.parent(uri))
    assert run.uri == uri
    assert len(run.questions.arrow(["question_id"])) == len(QUESTIONS)
    assert run.cluster_of(f"{CS}/31").cluster_id == f"{CS}/31"


def test_the_cluster_of_a_question(run: Run) -> None:
    canonical = TRIPLE[-1]
    cluster = run.cluster_of(TRIPLE[0])
    assert cluster == run.cluster_of(f"{CS}/31") or cluster.questions == run.cluster_of(f"{CS}/31").questions
    assert cluster.cluster_id == f"{CS}/31"
    assert cluster.canonical == f"{canonical[0]}/{canonical[1]}"
    assert cluster.canonical_reason == "score"
    assert [member.title for member in cluster.questions] == [TITLES[key] for key in (canonical, *TRIPLE[:2])]
    assert [member.is_canonical for member in cluster.questions] == [True, False, False]
    assert sorted(cluster.pairs.arrow()["source"].to_pylist()) == ["encoder", "encoder", "known_link"]
    assert repr(cluster).splitlines()[:2] == [
        f"cluster {CS}/31: 3 questions, to keep is the first",
        f"  {cluster.canonical}  {TITLES[canonical]}",
    ]
    assert cluster._repr_html_().count(f"<td>{cluster.canonical}</td>") == 1
    why = repr(run.explain(TRIPLE[0], TRIPLE[1])).splitlines()
    assert why[0] == "why {}/{} and {}/{}".format(*TRIPLE[0], *TRIPLE[1])
    assert re.fullmatch(rf"  {CS}/\d+ = {CS}/\d+  [a-z ]+, probability \d\.\d\d, joined", why[1])


def test_a_question_without_duplicates_is_its_own_cluster(run: Run) -> None:
    cluster = run.cluster_of((CS, 36))
    assert [member.question for member in cluster.questions] == [f"{CS}/36"]
    assert len(cluster.pairs) == 0
    assert cluster.canonical_reason is None


def test_edges_are_the_pair_and_the_surest_chain(run: Run) -> None:
    direct = run.explain(COPIES[0], COPIES[1]).edges.to_pylist()
    assert [row["source"] for row in direct] == ["exact"]
    chain = run.explain(LARGE[0], LARGE[4]).edges.to_pylist()
    assert [(row["question_id_left"], row["question_id_right"]) for row in chain] == [(1, 2), (2, 3), (3, 4), (4, 5)]
    linked = run.explain(TRIPLE[0], TRIPLE[2]).edges.to_pylist()
    assert [row["probability"] for row in linked] == [1.0]
    weakest = run.explain(TRIPLE[1], TRIPLE[2]).edges["probability"].to_pylist()  # 0.96 x 1 > 0.88
    assert weakest == pytest.approx([0.88, 1.0, 0.96]) or weakest == pytest.approx([0.88, 0.96, 1.0])
    assert math.prod(weakest[1:]) > weakest[0]


def test_a_pair_that_was_not_joined_is_an_edge_and_unrelated_questions_have_none(run: Run) -> None:
    assert run.explain((CS, 35), (TRAVEL, 9)).edges["joined"].to_pylist() == [False]
    assert len(run.explain((CS, 36), (TRAVEL, 3)).edges) == 0


def test_shared_shingles_are_words_of_both(run: Run) -> None:
    assert run.explain((CS, 36), (CS, 37)).shared_shingles == []
    shared = run.explain((CS, 36), (CS, 36)).shared_shingles
    assert shared == ["question 36 about", "36 about cs"]


@pytest.mark.parametrize(
    ("fails", "message", "kind"), [(2, "AWS Error", None), (3, "AWS Error", StorageError), (1, "x", DupqError)]
)
def test_what_arrow_gave_up_on_s3_is_read_again_twice(fails: int, message: str, kind: type[DupqError] | None) -> None:
    errors = [OSError(message)] * fails

    def read() -> int:
        if errors:
            raise errors.pop()
        return 1

    view = in_memory("s3://bucket/pairs", pa.table({"a": [1]}))
    expected = pytest.raises(kind, match="s3://bucket/pairs: cannot be read") if kind else nullcontext()
    with expected as raised:
        assert view._read(read) == 1
    assert kind is None or raised.type is kind
    assert not errors
