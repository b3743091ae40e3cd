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


EACH = """
import os, sys
import pytest
import hermes_agent.testing.open_host  # once: each run begins as a copy of this process

for folder in sys.argv[1:]:
    if (child := os.fork()) == 0:
        os.chdir(folder)
        sys.path.insert(0, folder)
        os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        status = pytest.main({arguments})
        sys.stdout.flush()
        os._exit(status)
    with open(os.path.join(folder, "status"), "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""
"""A program that runs the tests of one folder after another, each in its folder and in a process of its own."""


def run_tests(folders: list[str]) -> None:
    """Run the tests of each folder; write what they said and their status there."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    program = EACH.format(arguments=[*NESTED[3:], "tests"])
    subprocess.run([sys.executable, "-c", program, *folders], env=environ, timeout=240, check=True)


def check_tests(folder: Path) -> None:
    said = (folder / "said").read_text()
    assert (folder / "status").read_text() == "0", said
    assert " passed" in said


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plugin of each kind, checked together; the result of its tests is beside it."""
    place = tmp_path_factory.mktemp("each")
    folders = [str(place / f"my-{kind}") for kind in kinds()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HERMES_HOME", str(tmp_path_factory.mktemp("home")))
        for kind, folder in zip(kinds(), folders, strict=True):
            assert main(["plugins", "new", f"my-{kind}", "--kind", kind, "--dir", folder]) == 0
        assert main(["plugins", "check", *folders, "--strict"]) == 0
    run_tests(folders)
    return place


@pytest.mark.timeout(300)  # the first one waits for the tests of all
@pytest.mark.parametrize("kind", kinds())
def test_each_kind_is_checked_and_its_test_is_green(written: Path, kind: str) -> None:
    check_tests(written / f"my-{kind}")


def test_pytest_imports_no_directory_plugin_where_ours_is_loaded(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "speaker"
    main(["plugins", "new", "speaker", "--kind", "tts", "--dir", str(folder)])
    (folder / "tests" / "pytest.ini").unlink()

    done = its_tests(folder, "-p", "hermes_agent.testing.pytest_plugin", "-p", "no:hermes")
    assert done.returncode == 0, done.stdout + done.stderr


PACKAGED = ("tool", "skill", "memory")


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with packages of some kinds, tested there, and installed together in `site`."""
    place = tmp_path_factory.mktemp("packages")
    folders = [str(place / kind) for kind in PACKAGED]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HERMES_HOME", str(tmp_path_factory.mktemp("home")))
        for kind, folder in zip(PACKAGED, folders, strict=True):
            assert main(["plugins", "new", f"dice-{kind}", "--package", "--kind", kind, "--dir", folder]) == 0
    run_tests(folders)
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "-q", "--target", str(place / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, *folders], cwd=place, check=True, timeout=240)
    return place


@pytest.mark.timeout(300)  # the first one waits for all
@pytest.mark.parametrize("kind", PACKAGED)
def test_a_package_has_an_entry_point_and_its_test_is_green(packaged: Path, kind: str) -> None:
    check_tests(packaged / kind)
    found = [(p.name, p.value) for p in find_entry_points([str(packaged / "site")])]
    assert (f"dice-{kind}", f"hermes_plugin_dice_{kind}") in found
    assert len(found) == len(PACKAGED)
    if kind == "skill":
        assert (packaged / "site/hermes_plugin_dice_skill/skills/dice-skill/SKILL.md").exists()


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
