"""The teacher stage on small tables, with a stand-in for the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sentence_stand_in
from run_tables import contents, cut_off, key_of, question_row, scored_pairs, table, write_rows
from sentence_stand_in import READ, SIZE, unit, write_model

from dupq import storage
from dupq.archive import Shard
from dupq.clusters.calibration import FEATURES, TeacherModel
from dupq.clusters.steps.ask_teacher import COLUMNS, Reading, ask_teacher, cosines_in
from dupq.encoders.sentence_models import FLOOR, Teacher, teacher_at, teacher_texts
from dupq.job.gpus import NO_GPUS
from dupq.job.run import Run
from dupq.job.table import Shards, Shuffled, Table
from dupq.job.tasks import Report
from dupq.runs.records import RunFiles
from dupq.tables import CALIBRATION_PAIRS, CONTENT_HASHES, CONTENTS, COSINES, QUESTIONS, taught
from dupq.text.keys import Sites
from dupq.text.questions import content_hashes

PARTS = 3
WORDS = ["flat", "bread", "rises", "blue", "sails", "over", "seven", "hills"]
Texts = dict[tuple[str, int], tuple[str, str]]  # title and body of each question


def made_texts() -> Texts:
    random = np.random.default_rng(11)
    names = [("b.example.com", number) for number in range(1, 41)] + [("c.example.com", 5)]
    return {name: (" ".join(random.choice(WORDS, 4)), f"<p>{random.choice(WORDS)} {name[1]}</p>") for name in names}


class Archive:
    """A run up to its scored pairs."""

    def __init__(self, folder: Path, texts: Texts, shards: int = 2) -> None:
        self.texts, self.uri = texts, str(folder)
        self.sites = Sites([site for site, _ in texts])
        made = []
        for site in self.sites.names:
            ids = sorted(number for name, number in texts if name == site)
            for some in np.array_split(np.array(ids), shards):
                made.append(
                    self._write_shard(Shard(len(made), f"{folder}/site={site}/{len(made)}.parquet", site), some)
                )
        self.run, self.shards = RunFiles(self.uri), tuple(made)
        storage.write_json(self.run.texts_made_as, {"settings": {}, "algorithm": 1, "sites": self.sites.names})
        b = [key_of(self.sites, ("b.example.com", number)) for number in range(1, 41)]
        c = key_of(self.sites, ("c.example.com", 5))
        self.likely = {(b[row], b[row + 3]): FLOOR * (1 + row % 2) for row in range(20)} | {(b[2], c): 0.9}
        self.unlikely = {(b[row], b[row + 8]): FLOOR * 0.99 for row in range(0, 30, 3)}
        self.sampled = [(b[0], b[37]), (b[36], c)]
        self.scored = scored_pairs(f"{folder}/scored", self.likely | self.unlikely, PARTS)
        rows = [self._sampled_row(*pair) for pair in [*self.sampled, (b[35], b[38])]]
        self.pairs = table(f"{folder}/pairs", CALIBRATION_PAIRS, rows)
        self.moved: Table | None = None

    def _write_shard(self, shard: Shard, ids: np.ndarray) -> Shard:
        said = [self.texts[shard.site, number] for number in ids.tolist()]
        rows = [
            question_row(number, title=title, body_html=body) for number, (title, body) in zip(ids, said, strict=True)
        ]
        write_rows(shard.uri, rows, QUESTIONS)
        hashes = content_hashes(*(pa.array(column) for column in zip(*said, strict=True))) if said else np.zeros((0, 2))
        keys = self.sites.pack(shard.site, ids, "")
        columns = [*(pa.array(column.astype(np.int64)) for column in (keys, *hashes.T)), pa.array([""] * len(keys))]
        columns += [pa.array([[]] * len(keys), pa.list_(pa.int32())), pa.nulls(len(keys), pa.int32())]
        place = storage.join(f"{self.uri}/work/contents", shard.file)
        storage.write_table(place, pa.table(columns, schema=CONTENTS), CONTENTS)
        return shard

    def _sampled_row(self, left: int, right: int) -> dict[str, Any]:
        (sites, ids) = self.sites.unpack(np.array([left, right]))
        sides = {f"site_{side}": site for side, site in zip(("left", "right"), sites, strict=True)}
        sides |= {f"question_id_{side}": int(number) for side, number in zip(("left", "right"), ids, strict=True)}
        rest = dict.fromkeys(("similarity", "pairs", "weight", "log_rate"), 0.0)
        rest |= dict.fromkeys(("is_linked", "is_judged", "label"), False)
        p = FLOOR * (1 if (left, right) in self.sampled else 0.99)
        return {**sides, **rest, "probability": p, "features": [0.0] * len(FEATURES)}

    def ask(self, teacher: Teacher, since: "Archive | None" = None) -> Report:
        """Run the stage as a job does."""
        run, steps = Run(self.uri), Run(self.uri, "teacher")
        questions = Shards(self.shards, tuple(self.sites.names), COLUMNS)
        said = Table(f"{self.uri}/work/contents", CONTENTS, len(self.shards)).only(*CONTENT_HASHES.names)
        reading = Reading(teacher, "removed", self.sites.names)
        given = (self.scored, self.pairs), questions, said, reading, NO_GPUS, "", since.run if since else None

        def work() -> Report:
            self.moved = ask_teacher(steps, *given)
            return steps.report

        run.stage("teacher", work)
        return steps.report

    def text(self, key: int) -> str:
        (site,), (number,) = self.sites.unpack(np.array([key]))
        title, body = self.texts[site, int(number)]
        return teacher_texts([title], [body], "removed")[0]

    def vectors(self) -> dict[tuple[str, int], bytes]:
        """Return the stored vectors by question."""
        uris = [file.uri for file in storage.list_files(f"{self.uri}/work/teacher/vectors", ".arrow")]
        vectors = Shuffled(tuple(uris), None, PARTS)
        rows = [row for home in range(PARTS) for batch in vectors.batches(home) for row in batch.to_pylist()]
        names = [self.sites.unpack(np.array([row["key"]])) for row in rows]
        found = {
            (site, int(number)): np.array(row["vector"], np.float16).tobytes()
            for row, ((site,), (number,)) in zip(rows, names, strict=True)
        }
        assert len(found) == len(rows)
        return found


@pytest.fixture
def teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Teacher:
    sentence_stand_in.install(monkeypatch)
    return teacher_at(str(write_model(tmp_path / "model")), "")


def test_only_questions_of_likely_pairs_and_of_calibration_are_read_once(teacher: Teacher, tmp_path: Path) -> None:
    archive = Archive(tmp_path / "run", made_texts())
    report = archive.ask(teacher)
    wanted = {key for pair in [*archive.likely, *archive.sampled] for key in pair}
    assert sorted(READ) == sorted(archive.text(key) for key in wanted)
    assert report.rows_in == report.rows_out == len(wanted) == len(archive.vectors())


def test_cosines_are_of_the_pairs_of_which_both_questions_have_vectors() -> None:
    vectors = np.eye(SIZE, dtype=np.float16)[[0, 1, 0]]
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), SIZE)
    some = pa.table([[30, 10, 20], flat], schema=taught(SIZE))
    found = cosines_in(some, np.array([[10, 20], [20, 30], [20, 40], [5, 10]]))
    assert found.dtype == np.float32
    assert found[:2].tolist() == [0, 1]
    assert np.isnan(found[2:]).all()
    assert cosines_in(some[:0], np.array([[10, 20]])).tolist() == pytest.approx([np.nan], nan_ok=True)
    assert cosines_in(some, np.zeros((0, 2), np.int64)).shape == (0,)


def test_cosines_move_the_probabilities_of_likely_pairs_and_of_no_others(teacher: Teacher, tmp_path: Path) -> None:
    archive = Archive(tmp_path / "run", made_texts())
    archive.ask(teacher)
    work = f"{archive.uri}/work/teacher"
    model = TeacherModel(**storage.read_json(f"{work}/model.json"))
    kept = Table(f"{work}/cosines", COSINES, 1).read(0)["teacher"].to_pylist()
    units = [[unit(archive.text(key)).astype(np.float64) for key in pair] for pair in archive.sampled]
    assert kept[:2] == pytest.approx([one @ other for one, other in units], abs=2e-3)
    assert kept[2] is None
    seen = {}
    for part in range(PARTS):
        before, after = archive.scored.read(part), archive.moved.read(part)
        assert before.drop_columns(["probability", "teacher"]) == after.drop_columns(["probability", "teacher"])
        for then, now in zip(before.to_pylist(), after.to_pylist(), strict=True):
            pair = seen[now["left"], now["right"]] = now["left"], now["right"]
            if pair in archive.unlikely:
                assert (now["probability"], now["teacher"]) == (then["probability"], None)
            else:
                one, other = (unit(archive.text(key)).astype(np.float64) for key in pair)
                assert now["teacher"] == pytest.approx(one @ other, abs=2e-3)
                alone = model.probabilities(np.array([then["probability"]]), np.array([now["teacher"]]))
                assert now["probability"] == pytest.approx(alone[0], rel=1e-5)
    assert len(seen) == len(archive.likely | archive.unlikely)


def test_vectors_are_the_same_whatever_the_shards(teacher: Teacher, tmp_path: Path) -> None:
    few, many = (Archive(tmp_path / str(shards), made_texts(), shards) for shards in (1, 4))
    few.ask(teacher)
    many.ask(teacher)
    assert few.vectors() == many.vectors()


def test_an_attempt_that_was_cut_off_is_finished_and_gives_the_same_bytes(teacher: Teacher, tmp_path: Path) -> None:
    whole, cut = (Archive(tmp_path / name, made_texts()) for name in ("whole", "cut"))
    whole.ask(teacher)
    assert cut_off(28, cut.ask, teacher)
    read = len(READ)
    cut.ask(teacher)
    assert 0 < len(READ) - read < len(cut.vectors())
    first, second = (contents(f"{run.uri}/work/teacher") for run in (whole, cut))
    tables = [name for name in first if not storage.name(name).startswith("_")]  # but for marks, which name the run
    assert first.keys() == second.keys()
    assert [first[name] for name in tables] == [second[name] for name in tables]


def test_a_later_night_reads_only_what_is_new_or_changed(teacher: Teacher, tmp_path: Path) -> None:
    first = Archive(tmp_path / "first", made_texts())
    first.ask(teacher)
    texts = made_texts()
    texts["b.example.com", 4] = ("blue bread", "<p>now</p>")
    texts["a.example.com", 9] = ("another site", "")  # whose keys come before those of the others
    second, fresh = (Archive(tmp_path / name, texts, 3) for name in ("second", "fresh"))
    READ.clear()
    report = second.ask(teacher, first)
    assert READ == ["blue bread now"]
    assert report.counts == {"vectors as in the earlier run": report.rows_out - 1}
    READ.clear()
    fresh.ask(teacher)
    assert len(READ) == report.rows_out
    assert second.vectors() == fresh.vectors()


@pytest.mark.parametrize("changed", ["model", "vectors", "nothing kept"])
def test_nothing_is_taken_from_another_teacher_or_what_is_damaged(
    changed: str, teacher: Teacher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (Archive(tmp_path / name, made_texts()) for name in ("first", "second"))
    if changed != "nothing kept":
        first.ask(teacher)
    if changed == "model":
        (tmp_path / "model" / "weights").write_text("other")
        teacher = teacher_at(str(tmp_path / "model"), "")
    if changed == "vectors":
        file = storage.list_files(f"{first.uri}/work/teacher/vectors", ".arrow")[0]
        storage.write_bytes(file.uri, b"damaged")
    READ.clear()
    report = second.ask(teacher, first)
    assert len(READ) == report.rows_out
    why = {
        "model": "its results were made with another model",
        "vectors": "it has lost some",
        "nothing kept": "it has kept no results",
    }
    assert f"teacher: nothing is taken from {first.uri}: {why[changed]}" in capsys.readouterr().out


def test_an_archive_without_likely_pairs_needs_no_model(teacher: Teacher, tmp_path: Path) -> None:
    archive = Archive(tmp_path / "run", made_texts())
    scored_pairs(archive.scored.folder, {}, PARTS)
    table(archive.pairs.folder, CALIBRATION_PAIRS, [])
    report = archive.ask(teacher._replace(name="nowhere"))
    assert (report.rows_out, archive.vectors()) == (0, {})
    assert teacher.dimensions == SIZE
