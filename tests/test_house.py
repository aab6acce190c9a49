"""What holds for the whole project: light imports, one version, presets that parse, the interface."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dupq import __version__, config
from dupq.errors import SettingError

ROOT = Path(__file__).parents[1]
JOBS = ("ingest", "train", "dedup", "evaluate", "report", "from_dump")


@pytest.mark.parametrize("module", ["dupq.config", "dupq.tables", "dupq.pipelines.dedup", "dupq.cli.main"])
def test_importing_the_front_door_does_not_load_torch(module: str) -> None:
    loaded = _modules_after_importing(module)
    assert "torch" not in loaded
    assert "gensim" not in loaded


@pytest.mark.parametrize(
    "module",
    [
        *("dupq.config", "dupq.tables", "dupq.encoders.cnn", "dupq.near_duplicates.bands"),
        *("dupq.api.runs", "dupq.api.decisions", "dupq.api.lookup", "dupq.api.explanation", "dupq.api.duplicates"),
    ],
)
def test_importing_the_core_does_not_load_ray(module: str) -> None:
    assert "ray" not in _modules_after_importing(module)


def _modules_after_importing(module: str) -> set[str]:
    code = f"import sys, {module}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("job", JOBS)
def test_each_job_script_belongs_to_this_version(job: str) -> None:
    script = (ROOT / "jobs" / f"{job}.py").read_text()
    assert re.search(r'^VERSION = "(.+)"$', script, re.MULTILINE).group(1) == __version__


def test_a_script_of_another_version_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    script.write_text((ROOT / "jobs" / "report.py").read_text().replace(__version__, "0.0.9"))
    ended = subprocess.run([sys.executable, script, "--run", "x"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "0.0.9" in ended.stderr


INTERFACE = {
    "ingest": {"--dump", "--output", "--site", "--columns", "--answers", "--max-reject-share"},
    "train": {"--questions", "--links", "--pairs", "--output", "--preset", "--workers"},
    "dedup": {"--questions", "--encoder", "--output", "--links", "--truth", "--previous"}
    | {"--precision", "--known-links", "--verdicts", "--min-recall", "--max-cluster", "--max-change"},
    "evaluate": {"--questions", "--links", "--output", "--encoder", "--table"},
    "report": {"--run"},
    "from_dump": {"--dump", "--output", "--preset", "--truth"},
}


@pytest.mark.parametrize("job", JOBS)
def test_the_command_line_is_the_one_that_was_promised(job: str) -> None:
    shown = subprocess.run(
        [sys.executable, ROOT / "jobs" / f"{job}.py", "--help"], capture_output=True, text=True, check=True
    ).stdout
    everywhere = {"--help"} if job == "report" else {"--help", "--ray", "--set"}
    assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", shown.partition("options:")[2])) == INTERFACE[job] | everywhere


@pytest.mark.parametrize("preset", config.preset_names())
def test_every_preset_parses(preset: str) -> None:
    settings = config.load(preset)
    assert config.from_dict(config.to_dict(settings)) == settings


def test_settings_that_are_gone_do_not_keep_an_encoder_that_was_saved_with_them_from_being_read() -> None:
    saved = config.to_dict(config.Settings())
    saved["evaluation"]["bm25_limit"] = 500_000
    assert config.from_dict(saved) == config.Settings()


def test_bogdanovas_preset_has_the_papers_numbers() -> None:
    settings = config.load("bogdanova-sum")
    assert settings.word_vectors.dimensions == 200
    assert (settings.encoder.units, settings.encoder.window, settings.encoder.pooling) == (300, 3, "sum")
    assert settings.training.learning_rate == 0.005
    assert settings.text.code == "removed"


def test_the_other_presets_have_their_papers_numbers() -> None:
    cnn, bow = config.load("dos-santos-cnn"), config.load("dos-santos-bow-cnn")
    assert (cnn.encoder.units, cnn.training.learning_rate) == (1000, 0.05)
    assert (bow.encoder.units, bow.training.learning_rate) == (400, 0.01)
    for settings in (cnn, bow):
        assert (settings.word_vectors.dimensions, settings.encoder.window) == (200, 3)
        assert (settings.training.loss, settings.training.gamma, settings.training.negatives) == (
            "logistic_ranking",
            10.0,
            20,
        )
    for name in ("lstm", "gru", "alstm", "cnn"):
        settings = config.load(f"othman-{name}")
        assert (settings.word_vectors.dimensions, settings.encoder.similarity) == (300, "manhattan")
        assert (settings.training.loss, settings.training.epochs) == ("mean_squared_error", 25)
    assert (settings.encoder.filters, settings.encoder.dropout, settings.training.batch_size) == (32, 0.5, 128)
    assert (settings.training.optimizer, settings.training.learning_rate) == ("adam", 0.01)
    lstm = config.load("othman-alstm")
    assert (lstm.encoder.units, lstm.training.gradient_clipping, lstm.training.batch_size) == (50, 1.25, 64)
    assert (lstm.training.optimizer, lstm.encoder.pooling) == ("adadelta", "attention")


@pytest.mark.parametrize(
    ("assignment", "named"),
    [
        ("neighbours.k", "section.name=value"),
        ("nowhere.k=1", "nowhere"),
        ("neighbours.q=1", "has no 'q'"),
        ("neighbours.k=ten", "int expected"),
        ("neighbours.k=0", "neighbours.k"),
        ("neighbours.method=lsh", "'exact', 'ivf'"),
        ("neighbours.ivf_lists=-1", "neighbours.ivf_lists"),
        ("neighbours.ivf_probes=0", "neighbours.ivf_probes"),
        ("neighbours.ivf_sample=0", "neighbours.ivf_sample"),
        ("near_duplicates.threshold=0", "near_duplicates.threshold"),
        ("near_duplicates.bands=40", "128 permutations"),
        ("text.code=gone", "removed"),
        ("encoder.window=4", "odd"),
        ("encoder.widths=0", "encoder.widths"),
        ("encoder.widths=a,3", "whole numbers"),
        ("encoder.dropout=1", "encoder.dropout"),
        ("encoder.pooling=attention", "encoder.kind=cnn are sum, max"),
        ("encoder.similarity=manhattan", "scored by cosine"),
        ("encoder.kind=guess", "bow_cnn"),
        ("training.optimizer=guess", "adadelta"),
        ("title_body.epochs=-1", "title_body.epochs"),
        ("teacher.temperature=0", "teacher.temperature"),
        ("text.title_times=0", "text.title_times"),
        ("training.gamma=0", "training.gamma"),
        ("training.gradient_clipping=-1", "training.gradient_clipping"),
        ("training.development_share=0", "development_share"),
        ("training.beta=0.5", "has no 'beta'"),
        ("calibration.precision=0", "calibration.precision"),
        ("calibration.unknown_words=1.5", "calibration.unknown_words"),
        ("calibration.links=-1", "calibration.links"),
        ("calibration.sample=0", "calibration.sample"),
        ("clusters.threshold=1.1", "a probability expected"),
        ("clusters.scored_size=0", "clusters.scored_size"),
        ("clusters.known_links=yes", "'use', 'ignore', 'check'"),
        ("training.test_share=0.9", "less than 1"),
    ],
)
def test_a_wrong_setting_is_named(assignment: str, named: str) -> None:
    with pytest.raises(SettingError, match=re.escape(named)) as caught:
        config.load("bogdanova-sum", [assignment])
    assert caught.value.exit_code == 2


def test_an_unknown_preset_is_named_with_those_there_are() -> None:
    with pytest.raises(SettingError, match="bogdanova-sum"):
        config.load("no-such")


def test_lock_files_pin_every_dependency() -> None:
    pinned = (ROOT / "requirements.lock").read_text()
    declared = re.search(r"\ndependencies = \[(.*?)\n\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL).group(1)
    for name in re.findall(r'"([a-z0-9-]+)', declared):
        if name != "torch":
            assert re.search(rf"^{name}(\[.*\])?==", pinned, re.MULTILINE), name
    assert "torch==2.13.0\n" in (ROOT / "requirements-torch.lock").read_text()
