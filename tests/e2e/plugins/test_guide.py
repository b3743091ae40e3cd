"""docs/plugins/guide.md and publishing.md: every snippet is run as it is printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.plugins.entry_points import find_entry_points
from hermes_agent.testing import plugin_host
from nested_pytest import NESTED

DOCS = Path(__file__).resolve().parents[3] / "docs" / "plugins"
ROOT = DOCS.parents[1]
GUIDE = (DOCS / "guide.md").read_text(encoding="utf-8")
PUBLISHING = (DOCS / "publishing.md").read_text(encoding="utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def of_kind(page: str, kind: str) -> list[str]:
    return [text for found, text in blocks(page) if found == kind and not text.startswith("# file: ")]


def write_files(page: str, root: Path) -> None:
    for _, text in blocks(page):
        if found := re.match(r"# file: (\S+)\n", text):
            file = root / found[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


def write_data(folder: Path) -> None:
    """The two files of the guide that cannot say in themselves where they lie."""
    (folder / "skills" / "receipts").mkdir(parents=True)
    (folder / "rates.json").write_text(of_kind(GUIDE, "json")[0])
    (folder / "skills" / "receipts" / "SKILL.md").write_text(of_kind(GUIDE, "markdown")[0])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_files(GUIDE, tmp_path)
    write_data(tmp_path / "plugins" / "percent")
    for folder in (tmp_path / "plugins").iterdir():
        if not (folder / "plugin.yaml").exists():
            (folder / "plugin.yaml").write_text(f"name: {folder.name}\n")
    return tmp_path


def test_the_test_of_the_guide_passes(place: Path) -> None:
    load = ["-p", "hermes_agent.testing.pytest_plugin", "-p", "no:hermes"]
    done = subprocess.run(
        [*NESTED, *load],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_guide_s_commands_print_what_it_prints(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (page,) = of_kind(GUIDE, "console")
    monkeypatch.chdir(place)

    with plugin_host(place / "plugins" / "percent", config={"plugins": {"enabled": []}}, strict=False) as host:
        (host.home / "plugins" / "percent").unlink()
        shutil.copytree(place / "plugins" / "percent", host.home / "plugins" / "percent")
        for session in page.split("$ ")[1:]:
            command, _, printed = session.partition("\n")
            assert main(shlex.split(command)[1:]) == 0
            assert capsys.readouterr().out == printed
    (status,) = of_kind(GUIDE, "text")
    worked_on = {"plugins": {"entries": {"percent": {"trust": "dev"}}}}
    with plugin_host(place / "plugins" / "percent", config=worked_on) as host:
        shown = str(host.run_command("/plugins")).splitlines()
        assert shown[:2] == status.splitlines()
        assert "percent: percent_of, split_bill" in host.host.plugins.banner_lines()


def test_the_other_plugins_of_the_guide_do_what_it_says(place: Path) -> None:
    plugins = place / "plugins"
    with plugin_host(plugins / "tax-year", plugins / "careful", plugins / "find", model=["ok", "ok"]) as host:
        host.ask("How do I pay tax?")
        assert host.model.messages[-1]["content"] == "How do I pay tax?\n\nThe tax year ends on 31 December."
        host.ask("Hello")
        assert host.model.messages[-1]["content"] == "Hello"
        refused = json.loads(host.dispatch_tool("terminal", {"command": "deploy production"}))
        assert refused == {"error": "not on production"}
        (host.workspace / "found.txt").write_text("")
        assert "found.txt" in str(host.run_command("/find *.txt"))
    with plugin_host(plugins / "weather", strict=False) as host:
        assert host.record.error == "Plugin weather disabled (missing: WEATHER_API_KEY)"
    with plugin_host(plugins / "weather", env={"WEATHER_API_KEY": "a-key"}) as host:
        assert host.dispatch_tool("weather") == "sunny"
        assert "weather" in host.visible_tools


def test_no_snippet_is_left_out() -> None:
    kinds = [kind for kind, text in blocks(GUIDE) if not text.startswith("# file: ")]
    assert kinds == ["json", "markdown", "console", "text"]
    kinds = [kind for kind, text in blocks(PUBLISHING) if not text.startswith("# file: ")]
    assert kinds == ["console", "nix", "nix"]


def test_the_package_is_built_and_runs_from_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, site = tmp_path / "project", tmp_path / "site"
    write_files(PUBLISHING, project)
    write_data(project / "hermes_plugin_percent")
    (build,) = (s.removeprefix("$ ").strip() for s in of_kind(PUBLISHING, "console"))
    command = shlex.split(build)
    assert command[:4] == ["python", "-m", "pip", "wheel"]
    offline = ["--quiet", "--no-index", "--no-build-isolation"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    built = subprocess.run(
        [sys.executable, *command[1:], *offline],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    if "No module named pip" in built.stderr or "setuptools" in built.stderr:
        pytest.skip("building a wheel needs pip and setuptools 71 or later, which `make test` installs")
    assert built.returncode == 0, built.stderr
    (wheel,) = (project / "dist").glob("*.whl")
    subprocess.run(["unzip", "-q", str(wheel), "-d", str(site)], check=True) if shutil.which("unzip") else (
        shutil.unpack_archive(wheel, site, "zip")
    )
    monkeypatch.syspath_prepend(str(site))

    assert [(p.name, p.value) for p in find_entry_points([str(site)])] == [("percent", "hermes_plugin_percent")]
    with plugin_host("hermes_plugin_percent") as host:
        assert host.keys == ("percent",)
        assert host.run_command("/rates") == "CH, DE, FR"
        assert "part of it" in host.dispatch_tool("skill_view", {"name": "percent:receipts"})
        assert host.module.__file__ == str(site / "hermes_plugin_percent" / "__init__.py")


def test_the_nix_options_of_the_page_are_there() -> None:
    modules = "".join(p.read_text() for p in (ROOT / "modules" / "hermes-agent").glob("*.nix"))
    named = set(re.findall(r"services\.hermes-agent\.(\w+)", PUBLISHING))

    assert named == {"extraPythonPackages", "extraPlugins"}
    assert all(re.search(rf"\b{name}\b\s*=", modules) for name in named)


def test_the_nix_of_the_page_is_nix() -> None:
    tool = shutil.which("nix-instantiate")
    if tool is None:
        pytest.skip("there is no nix-instantiate here")
    for text in of_kind(PUBLISHING, "nix"):
        code = "{ pkgs, ... }: {\n" + text + "}"
        parsed = subprocess.run(
            [tool, "--parse", "-"], input=code, capture_output=True, text=True, timeout=60, check=False
        )
        assert parsed.returncode == 0, parsed.stderr


def test_each_page_names_the_next_one() -> None:
    for page in (GUIDE, PUBLISHING, (DOCS / "README.md").read_text(encoding="utf-8")):
        for link in re.findall(r"\]\(([\w./-]+\.md)\)", page):
            assert (DOCS / link).is_file(), link
