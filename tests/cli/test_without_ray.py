"""A job with `--ray none` where Ray cannot be imported."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_table_is_searched_without_ray(tmp_path: Path) -> None:
    (tmp_path / "fake/ray").mkdir(parents=True)
    (tmp_path / "fake/ray/__init__.py").write_text("raise ImportError('there is no Ray here')")
    (tmp_path / "faq.csv").write_text("title\n" + "".join(f"How do I change part {n} of my bike?\n" for n in range(40)))
    job = Path(__file__).parents[2] / "jobs" / "from_dump.py"
    command = [sys.executable, str(job), "faq.csv", "--output", "out", "--ray", "none", "--reranker", "none"]
    path = os.pathsep.join([str(tmp_path / "fake"), *filter(None, sys.path)])
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "40 questions of faq (" in ended.stdout
