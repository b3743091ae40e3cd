"""The program as it is installed: the pages and units that come with it, and `hermes self check` over all of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.text import SUBCOMMANDS
from wheels import build, call, copy_source, hermes, install_program
from worlds import ROOT

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("installed program")]

NAMED_PAGE = re.compile(r"docs/[\w./-]+\.md|\b(?:README|SECURITY|CONTRIBUTING|CHANGELOG)\.md")


@pytest.fixture(scope="module")
def pristine(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the program in the environment of `make install`, and a link to it on the PATH."""
    person = tmp_path_factory.mktemp("person")
    install_program(wheel, person)
    return person


def check(person: Path, *, status: int = 0) -> dict[str, list[dict[str, str]]]:
    """Run `hermes self check --json`; return its findings by subject."""
    done = hermes(person, "self", "check", "--json")
    assert done.returncode == status, done.stdout + done.stderr
    found: dict[str, list[dict[str, str]]] = {}
    for line in json.loads(done.stdout):
        found.setdefault(line["subject"], []).append(line)
    return found


@pytest.fixture
def restored(pristine: Path) -> Iterator[Path]:
    """The same home; what a test changes in the package is put back."""
    site = next((pristine / ".local" / "share" / "hermes-agent").glob("lib/*/site-packages"))
    saved = pristine.parent / f"{pristine.name}-saved"
    shutil.copytree(site, saved, symlinks=True)
    yield pristine
    shutil.rmtree(site)
    saved.rename(site)


def package(person: Path) -> Path:
    return next((person / ".local" / "share" / "hermes-agent").glob("lib/*/site-packages/hermes_agent"))


def texts_of_the_program() -> Iterator[tuple[str, str]]:
    """Return each page that a text of the program or of a bundled plugin names, with the file that names it."""
    for folder in (ROOT / "hermes" / "hermes_agent", ROOT / "plugins"):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".json", ".toml", ".txt", ".yaml") and file.is_file():
                for name in NAMED_PAGE.findall(file.read_text(encoding="utf-8")):
                    yield name, str(file.relative_to(ROOT))


def test_every_page_that_the_program_names_comes_with_it_and_is_shown(pristine: Path) -> None:
    named = dict(texts_of_the_program())
    assert len(named) > 20
    lacking = {name: by for name, by in named.items() if not (package(pristine) / "_shipped" / name).is_file()}
    # written into the folder of a plugin, or of a repository with plugins
    assert {name: by for name, by in lacking.items() if name != "README.md"} == {}

    listed = hermes(pristine, "self", "docs")
    assert listed.returncode == 0
    names = {line.split("  ")[0] for line in listed.stdout.splitlines()}
    assert {*named} - {*lacking} <= names
    shown = hermes(pristine, "self", "docs", "docs/operator/models.md")
    assert shown.stdout == (ROOT / "docs" / "operator" / "models.md").read_text()
    assert hermes(pristine, "self", "docs", "models-embedded").stdout.startswith("# ")
    none = hermes(pristine, "self", "docs", "no-such-page")
    assert (none.returncode, "`hermes self docs` lists" in none.stderr) == (2, True)


def test_units_man_pages_completion_and_schema_come_with_it(pristine: Path) -> None:
    units = {path.name: path.read_bytes() for path in (ROOT / "packaging" / "systemd").iterdir()}
    shipped = package(pristine) / "_shipped" / "systemd"
    assert {path.name: path.read_bytes() for path in shipped.iterdir()} == units and len(units) == 9
    assert (package(pristine) / "config" / "schema.json").is_file()
    share = pristine / ".local" / "share" / "hermes-agent" / "share"
    pages = {path.stem for path in (share / "man" / "man1").iterdir()}
    assert pages == {"hermes", *(f"hermes-{name}" for name in SUBCOMMANDS)}
    if shutil.which("man"):
        formatted = call("man", "-l", share / "man" / "man1" / "hermes.1", cwd=pristine, MANPAGER="cat")
        assert "HERMES(1)" in formatted.stdout
    for name in ("bash-completion/completions/hermes", "zsh/site-functions/_hermes"):
        assert "plugins" in (share / name).read_text()


def test_the_metadata_name_the_licence_the_author_and_the_repository(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    source = copy_source(tmp_path / "source")
    for command in (["init", "-q"], ["remote", "add", "origin", "https://user:pass@git.example.org/people/agent.git"]):
        subprocess.run(["git", *command], cwd=source, check=True)
    built = build("build_wheel", source, tmp_path / "dist")
    shutil.unpack_archive(built, tmp_path / "unpacked", "zip")
    (metadata,) = (tmp_path / "unpacked").glob("*.dist-info/METADATA")
    text = metadata.read_text()
    assert "Project-URL: Repository, https://git.example.org/people/agent\n" in text
    assert "user:pass" not in text
    assert "License-Expression: MIT\n" in text and re.search(r"^Author: \S", text, re.MULTILINE)
    assert text.count("Classifier: ") > 8


def test_an_untouched_installation_is_as_it_should_be(pristine: Path) -> None:
    found = check(pristine)
    assert found["files"][0]["level"] == "ok" and "files are as installed" in found["files"][0]["text"]
    assert [line["level"] for line in found["packages"]] == ["ok"]
    assert found["command"][0]["text"] == f"`hermes` is {pristine}/.local/bin/hermes"
    assert found["completion"][0]["level"] == found["unit"][0]["level"] == "idle"
    assert "in an environment of its own" in found["program"][0]["text"]


def test_changed_missing_and_foreign_files_are_named_with_the_command_that_mends_them(restored: Path) -> None:
    inside = package(restored)
    (inside / "core" / "text.py").write_text((inside / "core" / "text.py").read_text() + "# changed\n")
    (inside / "config" / "schema.json").rename(inside / "foreign.json")
    lines = {line["text"].split(":")[0]: line for line in check(restored, status=1)["files"]}
    assert "config/schema.json" in lines["1 file is missing"]["text"]
    assert "core/text.py" in lines["1 file is not as installed"]["text"]
    assert lines["1 file is not of this release"]["level"] == "note"
    assert "pip install --force-reinstall" in lines["1 file is missing"]["remedy"]


def test_a_missing_and_an_old_package_are_named_although_nothing_else_could_start(restored: Path) -> None:
    site = package(restored).parent
    (metadata,) = site.glob("hermes_agent-*.dist-info/METADATA")
    text = metadata.read_text().replace(
        "Requires-Dist: httpx<1,>=0.27", "Requires-Dist: httpx>=99\nRequires-Dist: nowhere-1"
    )
    metadata.write_text(text)
    (site / "dependencies.pth").unlink()
    found = check(restored, status=1)
    said = " ".join(line["text"] for line in found["packages"])
    assert "pyyaml is missing (needed: >=6,<7)" in said or "pyyaml is missing (needed: <7,>=6)" in said


def test_outdated_completion_man_pages_and_unit_are_found_and_written_again(pristine: Path) -> None:
    assert hermes(pristine, "completion", "install", "bash").returncode == 0
    found = check(pristine)
    assert found["completion"][0] == found["completion"][0] | {"level": "ok", "text": "up to date: bash"}
    assert f"{len(SUBCOMMANDS) + 1} in " in found["man pages"][0]["text"]

    script = pristine / ".local/share/bash-completion/completions/hermes"
    script.write_text("# hermes, long ago\n")
    page = pristine / ".local/share/man/man1/hermes-self.1"
    page.unlink()
    unit = pristine / ".config" / "systemd" / "user" / "hermes-agent.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(
        f'[Service]\nEnvironment="HERMES_HOME={pristine}/a 100%% home"\nExecStart="/gone/hermes" gateway run\n'
    )
    found = check(pristine, status=1)
    assert [found[name][0]["level"] for name in ("completion", "man pages", "unit")] == ["wrong"] * 3
    assert "starts /gone/hermes, which does not exist" in found["unit"][0]["text"]

    mended = hermes(pristine, "self", "check", "--fix")
    assert mended.returncode == 0, mended.stdout
    assert mended.stderr.count("written again: ") == 3
    text = unit.read_text()
    assert f'ExecStart="{pristine}/.local/share/hermes-agent/bin/hermes" gateway run' in text
    assert f'Environment="HERMES_HOME={pristine}/a 100%% home"' in text
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
        )
        assert "hermes-agent.service:" not in done.stderr, done.stderr


def test_a_command_that_is_not_on_the_path_is_wrong_and_another_one_is_named(pristine: Path, tmp_path: Path) -> None:
    script = pristine / ".local" / "share" / "hermes-agent" / "bin" / "hermes"
    done = call(script, "self", "check", cwd=pristine, PATH="/usr/bin:/bin")
    assert done.returncode == 1 and "is not on the PATH of this shell" in done.stdout
    assert f"export PATH={pristine}/.local/bin:$PATH" in done.stdout
    other = tmp_path / "hermes"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    done = call(script, "self", "check", cwd=pristine, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0 and f"is another one: {other}" in done.stdout


def test_a_source_tree_that_is_run_in_place_is_compared_with_its_last_commit(tmp_path: Path) -> None:
    done = call(Path(sys.executable).with_name("hermes"), "self", "check", "--json", cwd=tmp_path)
    lines: list[dict[str, Any]] = json.loads(done.stdout)
    assert "run from a source tree" in lines[0]["text"]
    (files,) = [line for line in lines if line["subject"] == "files"]
    assert str(ROOT) in files["text"]
