"""What a teacher reads and what comes of it, from tables written by hand; its model is a stand-in."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sentence_stand_in
from run_tables import contents, cut_off, home_of, key_of, question_row, scored_pairs, write_rows
from sentence_stand_in import READ, SIZE, unit, write_model

from dupq import storage
from dupq.clusters.calibration import FEATURES
from dupq.clusters.teacher_evidence import TeacherModel
from dupq.encoders.sentence_models import FLOOR, Teacher, teacher_at, teacher_texts
from dupq.execution.gpus import NO_GPUS
from dupq.execution.tasks import Report
from dupq.runs import writer
from dupq.runs.layout import RunLayout
from dupq.settings.config import Settings
from dupq.shards import Shard
from dupq.stages.teacher import cosines, read_likely, read_vectors
from dupq.tables import CALIBRATION_PAIRS, CONTENTS, COSINES, QUESTIONS, SCORED
from dupq.text.contents import content_hashes
from dupq.text.keys import Sites

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
        self.run = RunLayout(self.uri, tuple(made), "", None, None, None, None, PARTS)
        storage.write_json(self.run.texts_made_as, {"settings": {}, "algorithm": 1, "sites": self.sites.names})
        b = [key_of(self.sites, ("b.example.com", number)) for number in range(1, 41)]
        c = key_of(self.sites, ("c.example.com", 5))
        self.likely = {(b[row], b[row + 3]): FLOOR * (1 + row % 2) for row in range(20)} | {(b[2], c): 0.9}
        self.unlikely = {(b[row], b[row + 8]): FLOOR * 0.99 for row in range(0, 30, 3)}
        self.sampled = [(b[0], b[37]), (b[36], c)]
        scored_pairs(self.run.teacher.before, self.likely | self.unlikely, PARTS)
        rows = [self._sampled_row(*pair) for pair in [*self.sampled, (b[35], b[38])]]
        write_rows(self.run.calibration.pairs, rows, CALIBRATION_PAIRS)

    def _write_shard(self, shard: Shard, ids: np.ndarray) -> Shard:
        said = [self.texts[shard.site, number] for number in ids.tolist()]
        rows = [
            question_row(number, title=title, body_html=body) for number, (title, body) in zip(ids, said, strict=True)
        ]
        write_rows(shard.uri, rows, QUESTIONS)
        hashes = content_hashes(*(pa.array(column) for column in zip(*said, strict=True))) if said else np.zeros((0, 2))
        keys = self.sites.pack(shard.site, ids, "")
        columns = [*(pa.array(column.astype(np.int64)) for column in (keys, *hashes.T)), pa.array([""] * len(keys))]
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

    def embed(self, teacher: Teacher, since: "Archive | None" = None) -> Report:
        """The stage, as a job does it."""
        run, reports = writer.Run(self.uri, {}, Settings(), {}), []
        given = (self.run.teacher, self.sites, teacher, "removed", NO_GPUS, "", since.run if since else None)
        run.stage("teacher", lambda: reports.append(read_likely(*given)) or reports[0])
        return reports[0]

    def text(self, key: int) -> str:
        (site,), (number,) = self.sites.unpack(np.array([key]))
        title, body = self.texts[site, int(number)]
        return teacher_texts([title], [body], "removed")[0]

    def vectors(self) -> dict[tuple[str, int], bytes]:
        """What is kept, by question."""
        rows = [row for home in range(PARTS) for row in read_vectors(self.run.teacher, home).to_pylist()]
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
    report = archive.embed(teacher)
    wanted = {key for pair in [*archive.likely, *archive.sampled] for key in pair}
    assert sorted(READ) == sorted(archive.text(key) for key in wanted)
    assert report.rows_in == report.rows_out == len(wanted) == len(archive.vectors())


def test_a_part_gets_the_cosines_of_its_pairs_and_calibration_those_of_its_own(
    teacher: Teacher, tmp_path: Path
) -> None:
    archive = Archive(tmp_path / "run", made_texts())
    archive.embed(teacher)
    checked = 0
    for part in range(PARTS + 1):
        pairs = [pair for pair in archive.likely if home_of(pair[0], PARTS) == part]
        pairs = archive.sampled if part == PARTS else pairs
        found = cosines(archive.run.teacher, part, *np.array(pairs).T)
        assert found.dtype == np.float32
        units = [[unit(archive.text(key)).astype(np.float64) for key in pair] for pair in pairs]
        assert found == pytest.approx(np.array([one @ other for one, other in units]), abs=2e-3)
        checked += len(found)
    assert checked == len(archive.likely) + len(archive.sampled)
    alone = next(pair for pair in archive.unlikely if pair[1] == key_of(archive.sites, ("b.example.com", 36)))
    assert np.isnan(cosines(archive.run.teacher, home_of(alone[0], PARTS), *np.array([alone]).T)).all()
    assert cosines(archive.run.teacher, 0, *np.zeros((2, 0), np.int64)).shape == (0,)


def test_cosines_move_the_probabilities_of_likely_pairs_and_of_no_others(teacher: Teacher, tmp_path: Path) -> None:
    archive = Archive(tmp_path / "run", made_texts())
    archive.embed(teacher)
    files = archive.run.teacher
    model = TeacherModel(**storage.read_json(files.model))
    kept = storage.read_table(files.cosines, COSINES)["teacher"].to_pylist()
    assert [cosine is None for cosine in kept] == [False, False, True]
    seen = {}
    for part in range(PARTS):
        before, after = (storage.read_table(uri, SCORED) for uri in (files.scored(part), files.moved(part)))
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
    few.embed(teacher)
    many.embed(teacher)
    assert few.vectors() == many.vectors()


def test_an_attempt_that_was_cut_off_is_finished_and_gives_the_same_bytes(teacher: Teacher, tmp_path: Path) -> None:
    whole, cut = (Archive(tmp_path / name, made_texts()) for name in ("whole", "cut"))
    whole.embed(teacher)
    cut_off(10, cut.embed, teacher)
    read = len(READ)
    cut.embed(teacher)
    assert 0 < len(READ) - read < len(cut.vectors())
    first, second = (contents(f"{run.uri}/work/teacher") for run in (whole, cut))
    tables = [name for name in first if not storage.name(name).startswith("_")]  # but for marks, which name the run
    assert first.keys() == second.keys()
    assert [first[name] for name in tables] == [second[name] for name in tables]


def test_a_later_night_reads_only_what_is_new_or_changed(teacher: Teacher, tmp_path: Path) -> None:
    first = Archive(tmp_path / "first", made_texts())
    first.embed(teacher)
    texts = made_texts()
    texts["b.example.com", 4] = ("blue bread", "<p>now</p>")
    texts["a.example.com", 9] = ("another site", "")  # whose keys come before those of the others
    second, fresh = (Archive(tmp_path / name, texts, 3) for name in ("second", "fresh"))
    READ.clear()
    report = second.embed(teacher, first)
    assert READ == ["blue bread now"]
    assert report.counts == {"vectors as in the earlier run": report.rows_out - 1}
    READ.clear()
    fresh.embed(teacher)
    assert len(READ) == report.rows_out
    assert second.vectors() == fresh.vectors()


@pytest.mark.parametrize("changed", ["model", "vectors", "nothing kept"])
def test_nothing_is_taken_from_another_teacher_or_what_is_damaged(
    changed: str, teacher: Teacher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (Archive(tmp_path / name, made_texts()) for name in ("first", "second"))
    if changed != "nothing kept":
        first.embed(teacher)
    if changed == "model":
        (tmp_path / "model" / "weights").write_text("other")
        teacher = teacher_at(str(tmp_path / "model"), "")
    if changed == "vectors":
        file = storage.list_files(first.run.teacher.vectors, ".arrow")[0]
        storage.write_bytes(file.uri, b"damaged")
    READ.clear()
    report = second.embed(teacher, first)
    assert len(READ) == report.rows_out
    why = {"model": "was made with another model", "vectors": "has lost some", "nothing kept": "has not kept them"}
    assert f"the teacher reads all questions anew: {first.uri} {why[changed]}" in capsys.readouterr().out


def test_an_archive_without_likely_pairs_needs_no_model(teacher: Teacher, tmp_path: Path) -> None:
    archive = Archive(tmp_path / "run", made_texts())
    scored_pairs(archive.run.teacher.before, {}, PARTS)
    write_rows(archive.run.calibration.pairs, [], CALIBRATION_PAIRS)
    report = archive.embed(teacher._replace(name="nowhere"))
    assert (report.rows_out, archive.vectors()) == (0, {})
    found = cosines(archive.run.teacher, 0, np.array([1]), np.array([2]))
    assert np.isnan(found).all()
    assert teacher.dimensions == SIZE
