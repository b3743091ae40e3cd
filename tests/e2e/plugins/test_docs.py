"""docs/plugins/README.md: every snippet is run as it is printed."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.compat import import_hook
from hermes_agent.host import Host
from hermes_agent.plugins.context import PluginContext
from hermes_agent.plugins.entry_points import GROUP

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "plugins" / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILES = {m[1]: text for _, text in BLOCKS if (m := re.match(r"# file: (\S+)\n", text))}


@pytest.fixture
def page_home(home: Path, without_host: None) -> Iterator[Path]:
    """A home with every plugin of the page; the host that a test builds is the process's."""
    for name, text in FILES.items():
        if name.startswith("plugins/"):
            file = home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            manifest = file.parent / "plugin.yaml"
            if not manifest.exists() and f"plugins/{file.parent.name}/plugin.yaml" not in FILES:
                manifest.write_text(f"name: {file.parent.name}\n")
    import_hook.install()
    yield home
    import_hook.uninstall()


@pytest.fixture
def host(page_home: Path) -> Iterator[Host]:
    """The host, with every plugin of the page enabled."""
    (page_home / "config.yaml").write_text("plugins:\n  enabled: [dice, guard, scan, compatible]\n")
    built = Host.build(page_home)
    built.plugins.discover_and_load()
    yield built
    built.bridge.close()


def test_no_block_is_left_out() -> None:
    kinds = [kind for kind, text in BLOCKS if not text.startswith("# file: ")]

    assert kinds == ["console", "console"]
    assert set(FILES) == {
        "plugins/dice/plugin.yaml",
        "plugins/dice/__init__.py",
        "plugins/guard/__init__.py",
        "plugins/scan/__init__.py",
        "plugins/compatible/__init__.py",
        "pyproject.toml",
    }


def test_the_commands_print_what_the_page_prints(
    page_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(page_home)
    for name in ("guard", "scan", "compatible"):
        (page_home / "plugins" / name / "plugin.yaml").rename(page_home / f"{name}.yaml")
    for kind, text in BLOCKS:
        if kind != "console":
            continue
        for session in text.split("$ ")[1:]:
            command, _, printed = session.partition("\n")
            assert main(shlex.split(command)[1:]) == 0
            assert capsys.readouterr().out == printed


def test_the_plugins_of_the_page_do_what_it_says(
    page_home: Path, host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [r.error for r in host.plugins.records] == [None] * 4
    assert "✓ dice v1.0.0 (1 tools)" in host.plugins.status_text()
    assert "dice: roll" in host.plugins.banner_lines()
    ctx = host.plugins.contexts["dice"]

    rolled = json.loads(ctx.dispatch_tool("roll", {"count": "3", "sides": "1"}))
    refused = json.loads(ctx.dispatch_tool("read_file", {"path": "secret.txt"}))
    where = json.loads(ctx.dispatch_tool("where"))

    assert rolled == {"rolled": [1, 1, 1]}
    assert refused == {"error": "that file is private"}
    assert where == {"home": str(page_home), "turns": 90}
    assert [name for name, _ in host.plugins._plugins["guard"].module.seen] == ["roll", "read_file", "where"]
    found = host.plugins._plugin_commands["scan"]["handler"]("*.nothing")
    assert "error" not in json.loads(found)
    host.plugins._cli_commands["scan"]["handler_fn"](type("Args", (), {"folder": "here"}))
    assert capsys.readouterr().out == "scanning here\n"


def test_the_signatures_on_the_page_are_those_of_the_context() -> None:
    for line in re.findall(r"^\| `ctx\.(\w+)\((.*?)\)` \|", PAGE, re.MULTILINE):
        name, printed = line
        parameters = list(inspect.signature(getattr(PluginContext, name)).parameters.values())[1:]
        names = [p.strip().partition("=")[0].lstrip("*") for p in printed.split(",")]
        ours = [p.name for p in parameters if not (p.name == "help" and p.kind is p.KEYWORD_ONLY)]
        assert ours == names, name


def test_the_entry_point_group_on_the_page_is_ours() -> None:
    assert GROUP in tomllib.loads(FILES["pyproject.toml"])["project"]["entry-points"]
