"""A home without a model and a key, on a machine without a network: what the program says, and what works."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pexpect
import pytest

from worlds import HERMES, environment

ALONE = ["unshare", "--user", "--map-root-user", "--net"]


def alone(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `hermes` in a network namespace with nothing in it, not even a loopback that is up."""
    home.parent.mkdir(exist_ok=True, parents=True)
    return subprocess.run(
        [*ALONE, HERMES, *arguments],
        env=environment(home, XDG_CACHE_HOME=str(home.parent / "empty")),
        cwd=home.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(autouse=True)
def namespaces() -> None:
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here")


def test_it_says_how_to_get_a_model_and_what_works_without_one_and_that_is_true(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = alone(home, "-z", "hello")
    own = environment(home, XDG_CACHE_HOME=str(tmp_path / "empty"))
    command = [*ALONE[1:], HERMES]
    terminal = pexpect.spawn(ALONE[0], command, env=own, encoding="utf-8", timeout=100)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert (done.returncode, terminal.exitstatus) == (2, 2)
    for text in (done.stderr, terminal.before):
        assert "Traceback" not in text
        for way in ("OPENROUTER_API_KEY", "model.base_url", "hermes model pull", "hermes setup", "hermes self docs"):
            assert way in text
    named = re.search(r"^  hermes ((?:\w+, )+\w+)$", done.stderr, re.MULTILINE)
    assert named is not None
    works = {
        "config": ("show",), "plugins": ("list",), "skills": ("list",), "tools": ("list",), "sessions": ("list",),
        "state": ("check",), "cron": ("list",), "profile": ("list",), "import": ("list",), "logs": ("-n", "1"),
        "completion": ("bash",),
    }  # fmt: skip
    assert set(named[1].split(", ")) == set(works)
    for command, rest in works.items():
        ran = alone(home, command, *rest)
        assert ran.returncode == 0 and "Traceback" not in ran.stderr, (command, ran.stdout, ran.stderr)


def test_the_doctor_names_what_is_missing_and_a_plugin_can_be_made_and_used(tmp_path: Path) -> None:
    home = tmp_path / "home"
    checked = alone(home, "doctor", "--offline")
    assert checked.returncode == 1
    assert "There is no model." in checked.stdout and "Traceback" not in checked.stdout + checked.stderr
    assert alone(home, "plugins", "new", "dice").returncode == 0
    assert "no conflicts" in alone(home, "plugins", "check", "./dice").stdout
    assert alone(home, "self", "docs", "models").stdout.startswith("# Models")
