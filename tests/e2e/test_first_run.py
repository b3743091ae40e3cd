"""`examples/run`, which is `make run` without the installing: a home of its own, and what it says without a model."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from worlds import PROMPTS, script

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def checkout(path: Path) -> Path:
    """Copy what the script uses; the virtual environment is the one of the tests."""
    shutil.copytree(ROOT / "examples", path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (path / ".venv").symlink_to(sys.prefix)
    return path


def run(path: Path, *question: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [path / "examples" / "run", *question],
        env={**ENVIRONMENT, "HOME": str(path / "person"), **environment},
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


@pytest.mark.timeout(300)  # a dozen starts of the command
def test_a_question_that_was_answered_is_not_asked_again_and_it_says_how_to_go_on(tmp_path: Path, scripted) -> None:
    path = checkout(tmp_path)
    home = path / ".run"
    home.mkdir()
    with scripted(script(*PROMPTS)) as model:
        settings = f"{{provider: custom, base_url: '{model.base_url}', default: scripted-model}}"
        (home / "config.yaml").write_text(f"model: {settings}\n")
        (home / ".env").write_text("OPENAI_API_KEY=wrong\n")
        assert run(path).returncode == 1
        (home / ".env").write_text(f"OPENAI_API_KEY={model.key}\n")
        first = run(path)
        assert (first.returncode, "65536" in first.stdout) == (0, True), first.stderr  # the failed one did not count
        asked = len(model.bodies())
        second = run(path)
        assert (second.returncode, "65536" in second.stdout) == (0, False)

        terminal = pexpect.spawn(
            str(path / "examples" / "run"), env=ENVIRONMENT | {"HOME": str(path), "TERM": "xterm"}, encoding="utf-8"
        )
        terminal.expect("messages so far")
        terminal.expect("❯")
        assert len(model.bodies()) == asked
        terminal.send("exit\r")
        terminal.expect(pexpect.EOF)
        assert f"HERMES_HOME={home} {path}/.venv/bin/hermes" in terminal.before
        assert run(path, PROMPTS[1].question).returncode == 0
        assert len(model.bodies()) > asked
    for said in (first, second):
        keep = re.search(r"then: (cp .*)", said.stderr)
        assert keep is not None and "make run" in said.stderr

    person = path / "person"
    person.mkdir(exist_ok=True)
    subprocess.run(["sh", "-euc", keep[1]], env={"PATH": "/usr/bin:/bin", "HOME": str(person)}, check=True)
    shutil.rmtree(path / "examples")
    kept = subprocess.run(
        [path / ".venv" / "bin" / "hermes", "plugins", "list"],
        env=ENVIRONMENT | {"HOME": str(person)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"calculator.*enabled", kept.stdout), kept.stdout + kept.stderr
