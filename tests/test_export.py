"""`dupq export`: each format read by another reader, refused inputs, leftovers after errors, and S3."""

import csv
import json
from pathlib import Path

import duckdb
import fabricated_run
import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import regex
from fabricated_run import BAD_SITE, CLUSTERS, COPIES, CS, LARGE, PAIR, QUESTIONS, TITLES, TRIPLE, cluster_id
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from shown_commands import jobs_of, parser
from sklearn.decomposition import PCA

from dupq import cli, export, storage, tables
from dupq.api.runs import Run, open_run
from dupq.errors import DupqError
from dupq.runs import queries

DOCS = Path(__file__).parents[1] / "docs" / "export.md"
FORMULA, LINES, BELLS = '=HYPERLINK("http://evil.example")', 'one, "two"\r\nthree\n', "a bell \x07, a zero \x00, \ufffe"
OWN = {(CS, 5): FORMULA, (CS, 6): LINES, (CS, 7): BELLS}
DIMENSIONS, HIGHEST = 5, 2.5  # of the embeddings, and of a score


def build_embedded_run(folder: str) -> str:
    """The fabricated run with embeddings: vectors by chance, in two files, of all questions but a copy."""
    run = fabricated_run.build_run(folder)
    keys = [key for key in QUESTIONS if key != COPIES[1]]
    schema = tables.embeddings(DIMENSIONS, is_lexical=False)
    for part, own in enumerate((keys[1::2], keys[::2])):
        vectors = np.random.default_rng(part).normal(size=(len(own), DIMENSIONS)) * np.arange(1, DIMENSIONS + 1)
        flat = pa.array(vectors.astype(np.float16).ravel())
        embedding = pa.FixedSizeListArray.from_arrays(flat, DIMENSIONS)
        sites, numbers = zip(*own, strict=True)
        rows = {"site": sites, "question_id": numbers, "embedding": embedding, "fingerprint": [0] * len(own)}
        storage.write_table(storage.join(run, "embeddings", f"part-{part:05}.parquet"), pa.table(rows), schema)
    fabricated_run.write_encoder(run, storage.join(folder, "encoder"), dense=1.5, lexical=1.0)
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with hostile titles, exported to each format, in folders with the formats' names."""
    made = tmp_path_factory.mktemp("export")
    with pytest.MonkeyPatch.context() as patch:
        for key, title in OWN.items():
            patch.setitem(fabricated_run.TITLES, key, title)
        run = build_embedded_run(str(made))
        patch.setattr(export, "_LISTS_AT_ONCE", 3)
        for to in export.FORMATS:
            export.export(run, to, str(made / to))
    return made


@pytest.fixture
def run(folder: Path) -> Run:
    return open_run(folder / "runs")


def title_of(key: tuple[str, int]) -> str:
    return {**TITLES, **OWN}.get(key, f"Question {key[1]} about {key[0].split('.')[0]}")


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, strict=True))


def test_csv_has_the_tables_of_the_run_with_titles(folder: Path, run: Run) -> None:
    assert {(row["site"], int(row["question_id"])): row["title"] for row in rows_of(folder / "csv/clusters.csv")} == {
        key: title_of(key) if key != (CS, 5) else f"'{FORMULA}" for key in QUESTIONS
    }
    assert (folder / "csv/pairs.csv").read_bytes().startswith(b'"site_left","question_id_left","title_left",')
    for name, keys in (("pairs", "left"), ("clusters", "")):
        table = getattr(run, name).arrow()
        types, nulls = {field.name: field.type for field in table.schema}, {"strings_can_be_null": True}
        convert = arrow_csv.ConvertOptions(column_types=types, quoted_strings_can_be_null=False, **nulls)
        parse = arrow_csv.ParseOptions(newlines_in_values=True)
        read = arrow_csv.read_csv(folder / f"csv/{name}.csv", parse_options=parse, convert_options=convert)
        order = [f"{column}_{side}" for side in ("left", "right") for column in ("site", "question_id")]
        order = [(column, "ascending") for column in (order if keys else ["site", "question_id"])]
        assert read.select(table.column_names).to_pylist() == table.sort_by(order).to_pylist()


UNSEEN = " \t\r\n\u00a0\u200b\ufeff\x00"
STARTS = st.text("'=+-@＝＋－＠(a1" + UNSEEN, max_size=4)
UNDONE = r"^'('*[\p{Z}\p{Cc}\p{Cf}]*[=+\-@＝＋－＠])"  # as docs/export.md has it


@given(st.lists(st.builds(str.__add__, STARTS, st.text(max_size=3)), max_size=8))
def test_no_text_is_a_formula_and_every_text_comes_back(texts: list[str]) -> None:
    found = export.guarded(pa.array(texts, pa.string())).to_pylist()
    for given_text, text in zip(texts, found, strict=True):
        assert text.lstrip(UNSEEN)[:1] not in set("=+-@＝＋－＠")
        assert regex.sub(UNDONE, r"\1", text) == given_text
    assert UNDONE in DOCS.read_text()


def test_jsonl_says_the_same_with_titles_as_they_are(folder: Path, run: Run) -> None:
    lines = [json.loads(line) for line in (folder / "jsonl/clusters.jsonl").read_text().splitlines()]
    assert {(line["site"], line["question_id"]): line["title"] for line in lines} == {
        key: title_of(key) for key in QUESTIONS
    }
    pairs = [json.loads(line) for line in (folder / "jsonl/pairs.jsonl").read_text().splitlines()]
    assert len(pairs) == len(run.pairs)
    found = next(line for line in pairs if line["question_id_left"] == TRIPLE[0][1] and line["source"] == "encoder")
    assert (found["title_left"], found["title_right"]) == (title_of(TRIPLE[0]), title_of(TRIPLE[1]))
    assert found["probability"] == pytest.approx(0.96)


def test_one_question_of_each_cluster_is_kept_and_the_others_name_it(folder: Path) -> None:
    kept, dropped = rows_of(folder / "keep-drop/keep.csv"), rows_of(folder / "keep-drop/drop.csv")
    both = sorted((row["site"], int(row["question_id"])) for row in (*kept, *dropped))
    assert both == sorted(QUESTIONS)
    heads = {cluster[-1] for cluster in CLUSTERS}
    alone = set(QUESTIONS) - {key for cluster in CLUSTERS for key in cluster}
    assert {(row["site"], int(row["question_id"])) for row in kept} == heads | alone
    for row in dropped:
        (cluster,) = [own for own in CLUSTERS if (row["site"], int(row["question_id"])) in own]
        assert (row["kept_site"], int(row["kept_question_id"])) == cluster[-1]
        assert (row["kept_title"], row["cluster_id"]) == (title_of(cluster[-1]), cluster_id(cluster))
        assert row["reason"] == "score"


def test_the_components_of_the_graph_are_the_clusters(folder: Path, run: Run) -> None:
    graph = nx.read_graphml(folder / "graphml" / export.GRAPH)
    found = {frozenset(component) for component in nx.connected_components(graph)}
    assert found == {frozenset(f"{site}/{number}" for site, number in cluster) for cluster in CLUSTERS}
    for site, number in (key for cluster in CLUSTERS for key in cluster if key != (CS, 7)):
        node = graph.nodes[f"{site}/{number}"]
        assert (node["site"], node["question_id"], node["title"] or "") == (site, number, title_of((site, number)))
    assert graph.nodes[f"{CS}/7"]["title"] == "a bell \ufffd, a zero \ufffd, \ufffd"
    assert "url" not in graph.nodes[f"{BAD_SITE}/1"]  # which is no host name
    assert graph.nodes[f"{CS}/31"]["url"] == f"https://{CS}/questions/31"
    joined = run.pairs.arrow(filter=[("joined", "==", True)]).to_pylist()
    assert graph.number_of_edges() == len(joined)
    for row in joined:
        ends = (f"{row[f'site_{side}']}/{row[f'question_id_{side}']}" for side in ("left", "right"))
        edge = graph.edges[tuple(ends)]
        for name in ("source", "probability", "similarity", "jaccard", "known_link"):
            expected = pytest.approx(row[name], rel=1e-6) if isinstance(row[name], float) else row[name]
            assert edge.get(name) == expected


def test_the_map_has_each_question_with_an_embedding_its_point_and_its_neighbours(folder: Path, run: Run) -> None:
    frame = pd.read_parquet(folder / "embedding-atlas" / export.MAP)
    keys = list(zip(frame["site"], frame["question_id"], strict=True))
    assert keys == sorted(key for key in QUESTIONS if key != COPIES[1])
    row = frame.iloc[keys.index(TRIPLE[1])]
    assert (row["title"], row["text"], row["score"]) == (title_of(TRIPLE[1]), title_of(TRIPLE[1]), TRIPLE[1][1] - 3)
    assert (row["cluster_id"], row["cluster_size"]) == (cluster_id(TRIPLE), 3)
    assert pd.isna(frame["url"][keys.index(COPIES[0])])
    lists = [frame["neighbors"][keys.index(key)] for key in (PAIR[0], LARGE[0])]
    assert lists[0]["ids"].tolist() == [keys.index(PAIR[1])]
    assert lists[0]["distances"] == pytest.approx([1 - (2 - 0.91) / HIGHEST])
    assert len(lists[1]["ids"]) == 0  # near duplicates only
    embeddings = run.embeddings.pandas()
    expected = PCA(2, svd_solver="full").fit_transform(np.stack(embeddings["embedding"]).astype(np.float64))
    order = [keys.index(key) for key in zip(embeddings["site"], embeddings["question_id"], strict=True)]
    assert np.abs(frame[["x", "y"]].to_numpy()[order]) == pytest.approx(np.abs(expected), abs=1e-5)
    section = DOCS.read_text().partition("## Embedding Atlas")[2].partition("## GraphML")[0]
    assert set(export.MAP_SCHEMA.names) <= set(regex.findall(r"`(\w+)`", section))


def test_a_question_that_is_gone_since_is_no_row_of_the_map(tmp_path: Path) -> None:
    run = build_embedded_run(str(tmp_path))
    storage.delete(f"{tmp_path}/questions/site={CS}/part-00001.parquet")
    (written,) = export.export(run, "embedding-atlas", str(tmp_path / "out"))
    made = pd.read_parquet(written.uri)
    assert len(made) == len(QUESTIONS) - 20 - 1
    assert all(0 <= number < len(made) for row in made["neighbors"] for number in row["ids"])
    assert written.note.startswith("21 questions have no point")


@pytest.mark.parametrize(
    ("gone", "to", "said"),
    [
        ("runs/fabricated/_SUCCESS", "graphml", "not finished"),
        ("questions", "graphml", "questions: no such table"),
        ("encoder", "embedding-atlas", "encoder"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_left(gone: str, to: str, said: str, tmp_path: Path) -> None:
    run = build_embedded_run(str(tmp_path))
    storage.delete_folder(str(tmp_path / gone)) if (tmp_path / gone).is_dir() else storage.delete(str(tmp_path / gone))
    with pytest.raises(DupqError, match=said):
        export.export(run, to, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("keep-drop", r": cannot be read .*clusters/part-00001\.parquet"),
        ("embedding-atlas", r": 1MB of memory is too little \(Out of Memory Error"),
    ],
)
def test_a_damaged_table_and_too_little_memory_are_named_in_a_line(
    to: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = build_embedded_run(str(tmp_path))
    if to == "keep-drop":
        Path(run, "clusters", "part-00001.parquet").write_text("damaged")
    else:
        monkeypatch.setattr(queries, "_MEMORY", "1MB")
    with pytest.raises(SystemExit, match="1"):
        cli.main(["export", "--run", run, "--to", to, "--output", str(tmp_path / "out")])
    [line] = capsys.readouterr().err.splitlines()
    assert regex.search(regex.escape(run) + said, line)
    assert not (tmp_path / "out").exists()


def test_from_s3_to_s3_is_the_same(folder: Path, s3: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for key, title in OWN.items():
            patch.setitem(fabricated_run.TITLES, key, title)
        there = build_embedded_run(f"{s3}/export")
    for to in export.FORMATS:
        written = export.export(there, to, f"{s3}/exported/{to}")
        for file in written:
            own = folder / to / storage.name(file.uri)
            assert storage.read_bytes(file.uri) == own.read_bytes()


def test_the_docs_have_a_command_for_each_format_and_queries_that_are_right(run: Run) -> None:
    (to,) = (action for action in parser("export")._actions if action.dest == "to")
    assert tuple(export.FORMATS) == to.choices
    assert [parser("export").parse_args(job.arguments).to for job in jobs_of(DOCS)] == list(export.FORMATS)
    (first,) = regex.findall(r'duckdb.sql\(f"(SELECT source, .*)"\)', DOCS.read_text())
    joined = run.pairs.pandas(filter=[("joined", "==", True)]).groupby("source")["probability"]
    found = duckdb.sql(first.replace("{run}", run.uri)).fetchall()
    assert sorted(found) == [(name, len(own), pytest.approx(own.mean())) for name, own in joined]
