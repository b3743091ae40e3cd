"""`plugins.json`: a start that finds it lists no folder and reads no manifest; one that does not fit is ignored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.app.main import main
from hermes_agent.host import Host

Write = Callable[..., Path]

WATCHED = """
import json, os, sys
watched, seen = sys.argv[1], []
def hook(event, args):
    if event in ("open", "os.listdir", "os.scandir") and args and isinstance(args[0], str):
        if os.path.abspath(args[0]).startswith(watched + os.sep) or args[0] == watched:
            seen.append([event, os.path.relpath(args[0], watched)])
sys.addaudithook(hook)
from hermes_agent.app.start import start_host
host = start_host()
print(json.dumps({"seen": seen, "tools": sorted(n for r in host.plugins.records for n in r.tools_registered),
                  "plugins": {r.manifest.key: r.error or r.status for r in host.plugins.records}}))
"""
TOOL = """
def register(ctx):
    ctx.register_tool({0!r}, "t", {{"name": {0!r}, "description": "d"}}, lambda args, **kw: "x")
"""


@pytest.fixture
def declared(tmp_path: Path, home: Path, write_plugin: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A declared directory with two plugins, a category, and one that cannot be used."""
    root = tmp_path / "built" / "plugins"
    write_plugin("one", TOOL.format("first"), root=root)
    write_plugin("cat/two", TOOL.format("second"), root=root)
    write_plugin("broken", manifest="name: [broken\n", root=root)
    monkeypatch.setenv("HERMES_BUNDLED_PLUGINS", f"{tmp_path}/none:{root}")
    monkeypatch.delenv("HERMES_PLUGIN_INDEX", raising=False)
    (home / "config.yaml").write_text("plugins: {enabled: [one, cat/two]}\n")
    return root


def write_index(file: Path) -> dict[str, Any]:
    assert main(["plugins", "index", "--output", str(file)]) == 0
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def watched_start(declared: Path) -> dict[str, Any]:
    """Start in a process that notes every folder listed and every file opened below the declared directory."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCHED, str(declared)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def test_a_start_with_an_index_opens_nothing_but_the_plugins_code(declared: Path, tmp_path: Path) -> None:
    without = watched_start(declared)
    assert ["os.scandir", "."] in without["seen"]
    assert ["open", "one/plugin.yaml"] in without["seen"]

    write_index(declared.parent / "plugins.json")  # beside the declared directory: it is found there
    found = watched_start(declared)

    assert (found["tools"], found["plugins"]) == (without["tools"], without["plugins"])
    assert found["tools"] == ["first", "second"]
    opened = sorted({path for event, path in found["seen"] if event == "open" and not path.endswith(".pyc")})
    assert opened == ["cat/two/__init__.py", "one/__init__.py"]
    assert {event for event, _ in found["seen"]} == {"open"}


def test_what_cannot_be_used_is_told_from_the_index_too(
    declared: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> list[dict[str, str]]:
        capsys.readouterr()
        assert main(["plugins", "list", "--json"]) == 0
        return list(json.loads(capsys.readouterr().out))

    before = rows()
    write_index(declared.parent / "plugins.json")

    assert rows() == before
    assert [(r["key"], r["status"]) for r in before] == [
        ("cat/two", "enabled"),
        ("one", "enabled"),
        ("broken", "refused"),
    ]
    assert "line 2" in before[2]["reason"]


def damage(document: dict[str, Any], declared: Path) -> None:
    document["found"] = [{"source": "declared"}]


def another_version(document: dict[str, Any], declared: Path) -> None:
    document["program"]["hermes"] = "0.0.1"


def another_interpreter(document: dict[str, Any], declared: Path) -> None:
    document["program"]["prefix"] = "/elsewhere"


def another_manifest(document: dict[str, Any], declared: Path) -> None:
    (declared / "one" / "plugin.yaml").write_text("name: one\nversion: 7\n")


def another_module(document: dict[str, Any], declared: Path) -> None:
    (declared / "one" / "__init__.py").write_text("def register(ctx): pass\n")


def one_more(document: dict[str, Any], declared: Path) -> None:
    (declared / "three").mkdir()


def one_gone(document: dict[str, Any], declared: Path) -> None:
    (declared / "cat" / "two").rename(declared.parent / "moved")


def another_place(document: dict[str, Any], declared: Path) -> None:
    document["roots"][-1][1] = "/nowhere/plugins"


def another_format(document: dict[str, Any], declared: Path) -> None:
    document["index"] = 99


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (damage, "it is damaged: KeyError('name')"),
        (another_version, "it was written for hermes 0.0.1, this is "),
        (another_interpreter, "it was written for prefix /elsewhere, this is "),
        (another_manifest, "one/plugin.yaml has changed since"),
        (another_module, "one/__init__.py has changed since"),
        (one_more, "plugins has changed since"),
        (one_gone, "cat has changed since"),
        (another_place, "it is of other directories ("),
        (another_format, "it is no index of format 3"),
    ],
)
def test_an_index_that_does_not_fit_is_ignored_with_the_reason(
    declared: Path,
    home: Path,
    tmp_path: Path,
    start: Callable[..., Host],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[dict[str, Any], Path], None],
    reason: str,
) -> None:
    file = tmp_path / "elsewhere.json"
    document = write_index(file)
    change(document, declared)
    file.write_text(json.dumps(document))
    monkeypatch.setenv("HERMES_PLUGIN_INDEX", str(file))

    host = start("plugins: {enabled: [one, cat/two]}\n")

    said = f"the plugin index {file} is not used: "
    (line,) = [m for m in caplog.messages if m.startswith(said)]
    assert reason in line
    assert any(reason in hint for hint in host.plugins.hints())
    assert f"! {said}" in host.plugins.status_text()
    assert host.plugins.find("one") is not None  # found as always


@pytest.mark.parametrize("content", [None, "", "[]", "{", "\x00" * 9])
def test_no_index_where_one_was_named_is_told_and_harms_nothing(
    declared: Path,
    tmp_path: Path,
    start: Callable[..., Host],
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
) -> None:
    file = tmp_path / "named.json"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("HERMES_PLUGIN_INDEX", str(file))

    host = start("plugins: {enabled: [one, cat/two]}\n")

    assert [r.manifest.key for r in host.plugins.records if r.enabled] == ["cat/two", "one"]
    assert f"the plugin index {file} is not used" in host.plugins.status_text()


def test_packages_are_taken_from_the_index_while_the_path_is_as_it_was(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_agent.app.plugins.packages import index_document, write_index
    from hermes_agent.plugins.discovery import discover

    site = tmp_path / "site"
    info = site / "packaged-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text("[hermes_agent.plugins]\npackaged = fresh_package\n")
    environ = {"HERMES_BUNDLED_PLUGINS": f"{tmp_path}/none", "HERMES_PLUGIN_INDEX": str(tmp_path / "plugins.json")}
    write_index(index_document(environ, [str(site)]), tmp_path / "plugins.json")
    file = info / "entry_points.txt"
    before = file.stat()
    file.write_text(
        file.read_text().replace("packaged =", "unlisted =")
    )  # of the same length: who reads it is found out
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    found = discover(home, environ, tmp_path, path=[str(site)])
    assert list(found.plugins) == ["packaged"]
    assert found.index == str(tmp_path / "plugins.json")

    (site / "added-1.0.dist-info").mkdir()
    (site / "added-1.0.dist-info" / "entry_points.txt").write_text("[hermes_agent.plugins]\nadded = other\n")
    found = discover(home, environ, tmp_path, path=[str(site)])
    assert sorted(found.plugins) == ["added", "unlisted"]


def test_it_says_what_a_plugin_is_and_does_without_the_time(declared: Path, tmp_path: Path) -> None:
    document = write_index(tmp_path / "plugins.json")

    found = {each["manifest"]["key"]: each for each in document["found"] if "manifest" in each}
    assert sorted(found) == ["cat/two", "one"]
    assert found["one"]["hash"].startswith("sha256:")
    assert found["one"]["hash"] != found["cat/two"]["hash"]
    assert document == write_index(tmp_path / "again.json")
    assert document["program"]["python"] == ".".join(str(n) for n in sys.version_info[:3])
