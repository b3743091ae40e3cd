"""`examples/run`, which is `make run` without the installing: a home of its own, and what it says without a model."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.models.embedded import available

ROOT = Path(__file__).parents[2]


def checkout(path: Path) -> Path:
    """Copy what the script uses; the virtual environment is the one of the tests."""
    shutil.copytree(ROOT / "examples", path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (path / ".venv").symlink_to(sys.prefix)
    return path


def run(path: Path, question: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [path / "examples" / "run", question],
        env={"PATH": "/usr/bin:/bin", "HOME": str(path / "person"), "LANG": "C.UTF-8", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_without_a_model_to_be_had_it_says_which_ways_there_are(tmp_path: Path) -> None:
    path = checkout(tmp_path)
    # nothing is listening there: neither the publisher nor a package index can be reached
    nowhere = "http://127.0.0.1:9"
    done = run(path, "2+2?", HTTPS_PROXY=nowhere, HTTP_PROXY=nowhere, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 2, done.stdout + done.stderr
    for way in ("OPENROUTER_API_KEY", "model.base_url"):
        assert way in done.stderr
    assert "Traceback" not in done.stderr
    assert not (path / "person" / ".hermes").exists()


@pytest.mark.model
@pytest.mark.timeout(600)  # the model has what others leave of the processor
@pytest.mark.xdist_group("model")
@pytest.mark.skipif(not available({}).usable, reason="the embedded model is not there: `hermes model pull`")
def test_the_embedded_model_answers_with_the_calculator(tmp_path: Path) -> None:
    path = checkout(tmp_path)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    done = run(path, "What's 2 to the power of 16?", XDG_CACHE_HOME=cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "calculator: calculate, unit_convert" in done.stdout
    assert re.search(r'calculate \{"expression": "2\s*(\*\*|\^)\s*16"\}', done.stdout)
    assert "65536" in done.stdout.splitlines()[-1]
    assert not (path / "person" / ".hermes").exists()
