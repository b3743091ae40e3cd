"""`hermes plugins new`: what it writes works, and its test is green."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.app.plugins.new import kinds
from hermes_agent.plugins.entry_points import find_entry_points
from nested_pytest import NESTED

Capture = pytest.CaptureFixture[str]


def its_tests(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        [*NESTED, *arguments],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("kind", kinds())
def test_each_kind_is_checked_and_its_test_is_green(home: Path, tmp_path: Path, kind: str, capsys: Capture) -> None:
    folder = tmp_path / "my-first"

    assert main(["plugins", "new", "my-first", "--kind", kind, "--dir", str(folder)]) == 0
    assert main(["plugins", "check", str(folder), "--strict"]) == 0, capsys.readouterr().err

    done = its_tests(folder, "tests")
    assert done.returncode == 0, done.stdout + done.stderr


def test_pytest_imports_no_directory_plugin_where_ours_is_loaded(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "speaker"
    main(["plugins", "new", "speaker", "--kind", "tts", "--dir", str(folder)])
    (folder / "tests" / "pytest.ini").unlink()

    done = its_tests(folder, "-p", "hermes_agent.testing.pytest_plugin", "-p", "no:hermes")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["tool", "skill", "memory"])
def test_a_package_has_an_entry_point_and_its_test_is_green(home: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "dice"

    assert main(["plugins", "new", "dice", "--package", "--kind", kind, "--dir", str(folder)]) == 0

    done = its_tests(folder, "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "-q", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "."], cwd=folder, check=True, timeout=120)
    found = [(p.name, p.value) for p in find_entry_points([str(tmp_path / "site")])]
    assert found == [("dice", "hermes_plugin_dice")]
    if kind == "skill":
        assert (tmp_path / "site/hermes_plugin_dice/skills/dice/SKILL.md").exists()


def test_it_goes_from_new_to_enabled(
    home: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["plugins", "new", "dice"])
    monkeypatch.chdir(tmp_path / "dice")

    assert main(["plugins", "install", ".", "--enable"]) == 0

    capsys.readouterr()
    main(["plugins", "list", "--plain"])
    assert capsys.readouterr().out == "enabled      user     0.1.0    dice\n"


def test_nothing_is_overwritten(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "there").mkdir()

    assert main(["plugins", "new", "there", "--dir", str(tmp_path / "there")]) == 1

    assert "is there already" in capsys.readouterr().err
    assert os.listdir(tmp_path / "there") == []


@pytest.mark.parametrize(("name", "more"), [("../x", ()), ("1st", ()), ("a/b", ()), ("two words", ("--package",))])
def test_a_name_that_no_plugin_can_have_is_refused(
    tmp_path: Path, name: str, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["plugins", "new", name, *more]) == 1
    assert os.listdir(tmp_path) == []
