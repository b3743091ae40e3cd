"""Registering a provider, the same for every kind: types, names, conflicts, rollback, the list, the check."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.main import main
from hermes_agent.host import Host
from hermes_agent.plugins.context import PluginContext
from hermes_agent.plugins.host_services import KINDS

EXAMPLES = Path(__file__).parents[1] / "plugins" / "examples"
Start = Callable[..., Host]


def write(home: Path, name: str, body: str) -> Path:
    place = home / "plugins" / name
    place.mkdir(parents=True)
    (place / "plugin.yaml").write_text(f"name: {name}\nkind: standalone\n")
    (place / "__init__.py").write_text(body)
    return place


def enable(home: Path, *names: str) -> None:
    text = (home / "config.yaml").read_text() if (home / "config.yaml").exists() else ""
    (home / "config.yaml").write_text(f"plugins:\n  enabled: [{', '.join(names)}]\n{text}")


def run(home: Path, *names: str) -> Host:
    enable(home, *names)
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()
    return host


def copy_of(kind: str, folder: Path, name: str) -> Path:
    """Copy an example plugin under another plugin name; its provider keeps its name."""
    shutil.copytree(EXAMPLES / kind, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = folder / name / "plugin.yaml"
    manifest.write_text(manifest.read_text().replace(f"example-{kind.replace('_', '-')}", name))
    return folder / name


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_is_registered_counted_and_logged(
    kind: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hermes_agent.plugins")  # as HERMES_PLUGINS_DEBUG=1 does
    host = start(kind)

    (record,) = host.plugins.records
    ((found, name),) = record.providers_registered
    assert (record.error, found, host.providers[kind].names()) == (None, KINDS[kind].kind, [name])
    assert host.providers[kind].owner(name) == record.manifest.key
    assert f"Plugin '{record.manifest.name}' registered {KINDS[kind].kind.label}: {name}" in caplog.messages
    assert hasattr(PluginContext, KINDS[kind].kind.ctx_method)
    assert not [r for r in caplog.records if r.name.startswith("hermes_agent") and r.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", KINDS)
def test_something_of_another_type_is_ignored_with_a_warning(
    kind: str, home: Path, served: None, caplog: pytest.LogCaptureFixture
) -> None:
    method = KINDS[kind].kind.ctx_method
    write(home, "odd", f"class Odd:\n    name = 'odd'\n\ndef register(ctx):\n    ctx.{method}(Odd())\n")

    host = run(home, "odd")

    (record,) = host.plugins.records
    assert (record.error, record.providers_registered, host.providers[kind].names()) == (None, [], [])
    (line,) = [m for m in caplog.messages if "Ignoring." in m]
    assert line.startswith(f"Plugin 'odd' tried to register a {KINDS[kind].kind.label} that ")
    if KINDS[kind].refuse is None:
        assert line.endswith(f"does not inherit from {KINDS[kind].contract.__name__}. Ignoring.")
    assert any("Odd was not registered" in note for note in record.notes)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_plugin_registered_before_it_failed_is_taken_back(kind: str, home: Path, served: None) -> None:
    place = copy_of(kind, home / "plugins", "half")
    with (place / "__init__.py").open("a") as file:
        file.write(
            "\n_register = register\n\ndef register(ctx):\n    _register(ctx)\n    raise RuntimeError('half-way')\n"
        )

    host = run(home, "half")

    (record,) = host.plugins.records
    assert (record.error, record.providers_registered) == ("RuntimeError: half-way", [])
    assert host.providers[kind].names() == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_plugin_with_a_name_goes_without_it_and_the_check_names_both(
    kind: str, home: Path, served: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        copy_of(kind, home / "plugins", name)
    host = run(home, "one", "two")

    first, second = host.plugins.records
    ((_, name),) = first.providers_registered
    assert (second.enabled, second.providers_registered) == (True, [])
    (problem,) = second.problems
    label = KINDS[kind].kind.label
    assert (problem.kind, problem.owner, label in problem.text) == (label, "one", True)

    status = main(["plugins", "check", str(home / "plugins"), "--json", "--out", str(tmp_path / "out.json")])
    document = json.loads((tmp_path / "out.json").read_text())
    capsys.readouterr()
    assert status == 1
    (conflict,) = document["conflicts"]
    assert (conflict["kind"], conflict["owners"]) == (label, ["one", "two"])
    assert document["plugins"][0]["providers"] == [f"{kind}:{name}"]


def test_a_name_that_is_empty_or_no_text_fails_the_plugin(home: Path, served: None) -> None:
    body = (
        "from agent.web_search_provider import WebSearchProvider\n"
        "class P(WebSearchProvider):\n    name = {name!r}\n    def is_available(self): return True\n"
        "def register(ctx):\n    ctx.register_web_search_provider(P())\n"
    )
    write(home, "empty", body.format(name=" "))
    write(home, "number", body.format(name=3))

    host = run(home, "empty", "number")

    assert [r.error for r in host.plugins.records] == [
        "ValueError: a web search provider needs a name: P.name is ' '",
        "ValueError: a web search provider needs a name: P.name is 3",
    ]


def test_a_plugin_may_register_its_provider_again(home: Path, served: None) -> None:
    write(
        home,
        "again",
        "from agent.web_search_provider import WebSearchProvider\n"
        "class P(WebSearchProvider):\n    name = 'p'\n    def is_available(self): return True\n"
        "def register(ctx):\n    ctx.register_web_search_provider(P())\n    ctx.register_web_search_provider(P())\n",
    )

    (record,) = run(home, "again").plugins.records

    assert (record.error, record.problems, len(record.providers_registered)) == (None, [], 1)


def test_every_kind_has_its_method() -> None:
    assert all(hasattr(PluginContext, spec.kind.ctx_method) for spec in KINDS.values())
