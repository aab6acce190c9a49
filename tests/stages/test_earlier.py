"""What is taken from an earlier run, and what is left out."""

from pathlib import Path

import pyarrow as pa
import pytest

from dupq import storage
from dupq.runs.layout import RunLayout
from dupq.settings.text import TextSettings
from dupq.shards import Shard
from dupq.stages import earlier
from dupq.stages.texts import make_texts
from dupq.tables import QUESTIONS, TEXTS
from dupq.text.keys import Sites

SITES = Sites(["a"])
SHARDS = 10  # each of whose ids span those of all others


def shards(folder: Path) -> list[Shard]:
    made = [Shard(number, f"{folder}/site=a/{number}.parquet", "a") for number in range(SHARDS)]
    for shard in made:
        ids = range(shard.number, 300, SHARDS)
        asked = {"title": "Why?", "body_html": "<p>Because.</p>"}
        rows = [dict.fromkeys(QUESTIONS.names) | asked | {"question_id": number} for number in ids]
        schema = pa.schema([field.with_nullable(True) for field in QUESTIONS])
        storage.write_table(shard.uri, pa.Table.from_pylist(rows, schema), schema)
    return made


@pytest.mark.parametrize("then", ["cpu", "gpu"])
@pytest.mark.parametrize("now", ["cpu", "gpu"])
def test_earlier_embeddings_are_taken_only_if_they_are_of_the_same_kind_of_device(
    then: str, now: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    since, made_by = RunLayout(str(tmp_path)), {"encoder": "e", "torch": "2"}
    texts = earlier.Earlier("", "", since.path("embeddings"), [])
    storage.write_json(since.encoding.made_as, {**made_by, "device": then})
    monkeypatch.setattr(earlier, "is_intact", lambda *_: True)
    taken = earlier.earlier_embeddings(since, {**made_by, "device": now}, texts)
    assert taken == (texts if then == now else None)
    said = capsys.readouterr().out
    if then != now:
        assert f"made them on {then.upper()}s, and this run makes them on {now.upper()}s" in said
    else:
        assert ("made on GPUs too" in said) == (now == "gpu")


def test_files_beyond_those_that_are_read_for_a_shard_are_counted_and_their_questions_made_anew(tmp_path: Path) -> None:
    made, then, now = shards(tmp_path / "questions"), f"{tmp_path}/then", f"{tmp_path}/now"
    make_texts(made, SITES, TextSettings(), f"{then}/texts", f"{then}/contents")
    spans = earlier._spans(f"{then}/contents", SITES.names)
    before = earlier.Earlier(f"{then}/texts", f"{then}/contents", "", spans)
    report = make_texts(made, SITES, TextSettings(), f"{now}/texts", f"{now}/contents", before)
    assert report.caps == {earlier.LEFT_OUT.removeprefix("cap: "): SHARDS * 2}
    assert report.counts["texts as in the earlier run"] == 240
    for shard in made:
        tables = [storage.read_table(f"{folder}/texts/{shard.file}", TEXTS) for folder in (then, now)]
        assert tables[0].equals(tables[1])
