"""The judge's stage on small archives, with a server on this machine."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline import without_ray
from judge_server import Call, JudgeServer, Refusal, answer_text, judge_server, reply_of
from run_tables import contents, question_row, scored_pairs, write_rows

from dupq.archive import Shard
from dupq.errors import GateError
from dupq.evaluation.sampling import Judged
from dupq.job.run import Run
from dupq.job.table import Broadcast, Shards, Table
from dupq.judging import client
from dupq.judging.client import Endpoint
from dupq.judging.trust import with_answers
from dupq.stages.judge import COPY, DIFFERENT, LIKELY, VERDICT, JudgedPairs, Judging, control_pairs, judge
from dupq.tables import JUDGE_ANSWERS, QUESTIONS
from dupq.text.keys import ID_BITS, Sites

SITES = Sites(["a.example.com", "b.example.com"])
PARTS, PER_SITE = 3, 60  # partitions; questions of a site
ASKED = pa.schema([JUDGE_ANSWERS.field(name) for name in ("left", "right", "probability", "kind")])
NOBODY = Judged(np.zeros((0, 2), np.int64), np.zeros(0, np.int8))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RETRIES", 0)


def key(site: int, number: int) -> int:
    return (site << ID_BITS) | number


class Archive:
    """Two sites, in each of which question n may be a duplicate of n + 1, the first ones likelier than the last."""

    def __init__(self, folder: Path, name: str = "run") -> None:
        self.uri = str(folder / name)
        self.p = {
            (key(site, number), key(site, number + 1)): float(np.float32(0.9 * 0.93**number + site * 1e-3))
            for site in (0, 1)
            for number in range(1, PER_SITE)
        }
        self.p[key(0, 1), key(0, 3)] = float(np.float32(0.995))  # certain: nobody asks
        self.scored = scored_pairs(f"{self.uri}/scored", self.p, PARTS)
        shards = []
        for site, host in enumerate(SITES.names):
            uri = f"{folder}/questions/site={host}/part-00000.parquet"
            rows = [
                question_row(number, title=f"Title {site} {number:03}", body_html=f"<p>Body {number}</p>")
                for number in range(1, PER_SITE + 1)
            ]
            write_rows(uri, rows, QUESTIONS)
            shards.append(Shard(site, uri, host))
        self.questions = Shards(tuple(shards), tuple(SITES.names), QUESTIONS)
        self.answers = str(folder / "judge-answers")

    def judge(self, server: JudgeServer, people: Judged = NOBODY, required: bool = False, **more: Any) -> JudgedPairs:
        pairs = more.pop("pairs", 20)
        endpoint = Endpoint(**{"url": server.url, "model": "m", "max_tokens": 50, "connections": 4, **more})
        judging = Judging(endpoint, pairs, "removed", self.answers, required)
        self.made: JudgedPairs = judge(Run(self.uri), self.scored, self.questions, SITES, people, judging)
        return self.made

    @property
    def after(self) -> dict[tuple[int, int], float]:
        return probabilities(self.made.scored)

    def rows(self) -> list[dict[str, Any]]:
        return list(Broadcast(self.made.answers).read().to_pylist())


def probabilities(table: Table) -> dict[tuple[int, int], float]:
    rows = Broadcast(table).read().to_pylist()
    return {(row["left"], row["right"]): row["probability"] for row in rows}


def sensible(call: Call) -> str:
    """The first eight begin duplicates; copies are the same, and strangers are not."""
    first, second = (title.split()[1:] for title in call.titles)
    if first == second:
        return answer_text(99)
    near = first[0] == second[0] and int(second[1]) - int(first[1]) == 1
    return answer_text(88 if near and int(first[1]) <= 8 else 4, differs="the number")


@pytest.fixture(scope="module")
@without_ray()
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """After a judge that answers sensibly."""
    archive = Archive(tmp_path_factory.mktemp("sensible"))
    with judge_server(sensible) as server:
        archive.judge(server)
        assert len(server.calls) == 48 == archive.made.summary["asked"]
    return archive


def test_the_likeliest_of_each_site_are_asked_by_turns_and_control_pairs(archive: Archive) -> None:
    rows = archive.rows()
    likely = [(row["left"], row["right"]) for row in rows if row["kind"] == LIKELY]
    for site in (0, 1):
        own = [pair for pair in archive.p if pair[0] >> ID_BITS == site and archive.p[pair] < 0.985]
        wanted = sorted(own, key=lambda pair: -archive.p[pair])[:20]
        assert [pair for pair in likely if pair[0] >> ID_BITS == site] == wanted
    assert [pair[0] >> ID_BITS for pair in likely] == [0, 1] * 20
    kinds = [row["kind"] for row in rows if row["kind"] != LIKELY]
    assert kinds.count(COPY) == 4
    assert kinds.count(DIFFERENT) == 4


def test_answers_move_the_pairs_that_were_asked_and_no_others(archive: Archive) -> None:
    asked = {(row["left"], row["right"]): row for row in archive.rows() if row["kind"] == LIKELY}
    for pair, before in archive.p.items():
        after = archive.after[pair]
        if pair not in asked:
            assert after == before
        elif asked[pair]["same"] > 50:
            assert after > before
        else:
            assert after < before
    # each by what its site's trust says
    trust = archive.made.summary["trust"]["0 m"]
    pair = (key(0, 2), key(0, 3))
    added = trust["shift"] + trust["log_ratios"][5]
    assert archive.after[pair] == pytest.approx(with_answers(np.array([archive.p[pair]]), np.array([added]))[0])
    table = pq.read_table(f"{archive.uri}/judge").to_pylist()  # for people
    rows = {(row["site_left"], row["question_id_left"], row["question_id_right"]): row for row in table}
    row = rows["a.example.com", 2, 3]
    assert len(table) == 48
    assert (row["probability_before"], row["differs"]) == (archive.p[pair], "the number")
    assert row["probability"] == pytest.approx(archive.after[pair])


def test_people_come_first_and_what_they_said_is_a_label(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    pairs = np.array([[key(0, 50), key(0, 51)], [key(1, 40), key(1, 41)], [key(0, 7), key(0, 30)]])
    people = Judged(pairs, np.array([1, 0, 1], np.int8))
    with judge_server(sensible) as server:
        archive.judge(server, people)
    rows = [row for row in archive.rows() if row["kind"] == VERDICT]
    assert [(row["left"], row["right"]) for row in rows] == [
        tuple(pair) for pair in pairs[1::-1].tolist()
    ]  # the likelier first
    assert archive.made.summary["people"] == {"pairs": 2, "agree": 1, "yes": 0, "right": 0, "least_right": 0.0}


def test_the_second_night_asks_only_about_new_pairs(tmp_path: Path) -> None:
    first, second = Archive(tmp_path, "run"), Archive(tmp_path, "again")
    with judge_server(sensible) as server:
        first.judge(server)
        asked = len(server.calls)
        second.judge(server)
        assert len(server.calls) == asked
        assert second.after == first.after
        third = Archive(tmp_path, "more")
        third.judge(server, pairs=23)
        assert 6 <= len(server.calls) - asked <= 6 + 8  # and control pairs that are drawn from more questions


def test_a_rerun_of_a_killed_stage_has_the_bytes_of_one_that_was_not(archive: Archive, tmp_path: Path) -> None:
    cut = Archive(tmp_path)

    def failing(call: Call) -> Any:
        return sensible(call) if call.number < 15 else Refusal(500)

    with judge_server(failing) as server, pytest.raises(GateError, match="HTTP 500"):
        cut.judge(server, required=True)
    with judge_server(sensible) as server:
        cut.judge(server, required=True)
        assert len(server.calls) == 48 - 15
    assert contents(cut.made.scored.folder) == contents(archive.made.scored.folder)


def test_a_judge_that_fails_leaves_what_it_said_and_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive = Archive(tmp_path)
    with judge_server(lambda call: sensible(call) if call.number < 20 else Refusal(410)) as server:
        archive.judge(server)
    assert archive.made.summary["answered"] == 20
    assert archive.made.summary["lines"] == ["HTTP 410: the endpoint is gone (no)"]
    assert "judge: HTTP 410" in caplog.text


def test_what_a_text_tells_the_judge_is_not_used_and_counted(tmp_path: Path) -> None:
    def fooled(call: Call) -> str:
        return answer_text(100, odd=True) if "Title 0 005" in call.titles else sensible(call)

    archive = Archive(tmp_path)
    with judge_server(fooled) as server:
        archive.judge(server)
    for pair in ((key(0, 4), key(0, 5)), (key(0, 5), key(0, 6))):
        assert archive.after[pair] == archive.p[pair]
    assert archive.made.summary["odd"] >= 2


def test_answers_of_two_models_are_weighed_apart(tmp_path: Path) -> None:
    def either(call: Call) -> Any:
        return reply_of(sensible(call), "m-2") if "Title 1" in call.titles[0] else sensible(call)

    archive = Archive(tmp_path)
    with judge_server(either) as server:
        archive.judge(server)
    assert archive.made.summary["trust"].keys() == {"0 m", "1 m-2"}
    assert archive.made.summary["lines"] == ["asked as m, m, m-2 answered, and the answers count as its own"]


def test_control_pairs_are_of_one_site_and_never_asked_together() -> None:
    random = np.random.default_rng(1)
    ends = np.unique(np.sort(random.integers(1, 80, (300, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    pairs = pa.table([*ends.T, np.full(len(ends), 0.1, np.float32), [LIKELY] * len(ends)], schema=ASKED)
    rows = control_pairs(pairs).to_pylist()
    asked = set(map(tuple, ends.tolist()))
    assert sum(row["kind"] == COPY for row in rows) == 10
    for row in rows:
        if row["kind"] == COPY:
            assert row["left"] == row["right"]
        else:
            assert row["left"] < row["right"]
            assert (row["left"], row["right"]) not in asked
    assert not len(control_pairs(pairs.slice(0, 5)))
