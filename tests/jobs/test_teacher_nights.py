"""Jobs with a teacher; its model is a stand-in."""

from pathlib import Path

import pytest
import sentence_stand_in
from trained import TrainedSample

from dupq import storage, system
from dupq.errors import DupqError
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.train import FromDumpJob
from dupq.text.keys import MAXIMUM_ID


def test_the_second_night_reads_what_the_first_has_not(
    small_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence_stand_in.install(monkeypatch)
    teacher, output = str(sentence_stand_in.write_model(tmp_path / "model")), str(tmp_path / "runs")
    first = dedup(DedupJob(small_sample.questions, small_sample.encoder, output, teacher=teacher))
    record = next(record for record in first.records if record["name"] == "teacher")
    assert record["rows_out"] == len(sentence_stand_in.READ) > 200
    sentence_stand_in.READ.clear()
    job = DedupJob(small_sample.questions, small_sample.encoder, output, small_sample.links, None, output)
    second = dedup(DedupJob(**{**vars(job), "teacher": teacher}))
    assert second.uri != first.uri
    assert storage.read_json(second.path("manifest.json"))["inputs"]["teacher"] == teacher
    contents = [storage.read_table(file.uri) for file in storage.list_files(first.path("work", "teacher", "contents"))]
    kept = {key & MAXIMUM_ID for table in contents for key in table["key"].to_pylist()}
    assert len(kept) == record["rows_out"]
    taken = second.records[[record["name"] for record in second.records].index("teacher")]
    assert taken["counts"]["vectors as in the earlier run"] > 200
    assert len(sentence_stand_in.READ) == taken["rows_out"] - taken["counts"]["vectors as in the earlier run"]


def test_a_teacher_that_is_not_there_is_told_before_any_work(
    small_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"teacher": str(tmp_path / "nowhere")}
    jobs = (
        DedupJob(small_sample.questions, small_sample.encoder, str(tmp_path), **given),
        FromDumpJob((small_sample.dump,), str(tmp_path), **given),
    )
    sentence_stand_in.install(monkeypatch)
    for job in jobs:
        with monkeypatch.context() as patch:
            patch.setattr(system, "is_installed", lambda module: module != "sentence_transformers")
            with pytest.raises(DupqError, match=r"--teacher .*nowhere needs .* pip install 'dupq\[teacher\]'"):
                job.check()
        with pytest.raises(DupqError, match=r"--teacher .*nowhere: neither the folder"):
            job.check()
