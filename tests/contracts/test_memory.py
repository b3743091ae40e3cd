"""Memory providers (docs/plugins/kinds/memory.md): the suite, where they lie, and who is selected."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.memory_service import MemoryService
from hermes_agent.app.main import main
from hermes_agent.contracts.memory import MemoryProvider, check_memory_provider, choose_memory
from hermes_agent.host import Host


class InMemory(MemoryProvider):
    """Remembers the last message; inherits what it can."""

    name = "memory"
    last = ""

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.last = ""

    def sync_turn(self, user_content: str, assistant_content: str, **kwargs: Any) -> None:
        self.last = user_content

    def prefetch(self, query: str, **kwargs: Any) -> str:
        return self.last


class Duck:
    """Inherits nothing."""

    name = "duck"

    def __init__(self) -> None:
        self.said: list[str] = []

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.said = []

    def sync_turn(self, user_content: str, assistant_content: str, **kwargs: Any) -> None:
        self.said.append(user_content)

    def prefetch(self, query: str, **kwargs: Any) -> str:
        return "\n".join(self.said)


@pytest.fixture(params=["in memory", "not a subclass", "example plugin", "notebook", "http-memory"])
def provider(
    request: pytest.FixtureRequest,
    example: Callable[[str], Any],
    home: Path,
    memory_service: MemoryService,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """Every implementation, a conversation begun."""
    if request.param in ("notebook", "http-memory"):
        monkeypatch.delenv("HERMES_BUNDLED_PLUGINS")
    if request.param in ("notebook", "http-memory"):
        made = bundled(home, request.param)
    else:
        made = {"in memory": InMemory, "not a subclass": Duck}.get(request.param, lambda: example("memory"))()
    assert check_memory_provider(made) == ""
    made.initialize("s1", hermes_home=str(home), platform="cli", agent_context="primary")
    if request.param == "notebook":  # what a session itself said is in front of the model anyway
        recall, sessions = made.prefetch, itertools.count()
        made.prefetch = lambda query, **kw: (made.on_session_switch(f"s{next(sessions)}"), recall(query))[1]
    return made


def bundled(home: Path, name: str) -> Any:
    """Return a bundled provider, loaded as `memory.provider` loads it."""
    host = run(home, name)
    (record,) = [r for r in host.plugins.records if r.manifest.kind == "exclusive"]
    assert (record.error, record.manifest.key) == (None, f"memory/{name}")
    return host.providers.choose("memory", host.config.values).provider


def test_it_says_who_it_is(provider: Any) -> None:
    assert isinstance(provider.name, str) and provider.name
    assert provider.is_available() in (True, False)


def test_a_turn_is_remembered_and_recalled(provider: Any) -> None:
    assert not provider.prefetch("otters", session_id="s1")

    provider.sync_turn("I like otters", "So do I", session_id="s1")

    assert "otters" in provider.prefetch("what about otters?", session_id="s1")


def test_its_tools_have_a_name_and_parameters(provider: Any) -> None:
    for schema in getattr(provider, "get_tool_schemas", list)():
        function = schema.get("function", schema)
        assert function["name"] and function["parameters"]["type"] == "object"
        args = {"word": "otter", "query": "otter", "text": "otter", "id": "1"}
        assert isinstance(provider.handle_tool_call(function["name"], args), str)


def test_everything_else_may_be_left_out() -> None:
    made = InMemory()
    assert (made.get_tool_schemas(), made.system_prompt_block(), made.on_pre_compress([])) == ([], "", "")
    assert (made.get_config_schema(), made.backup_paths()) == ([], [])
    with pytest.raises(NotImplementedError, match="'memory' has no tool 'x'"):
        made.handle_tool_call("x", {})
    made.queue_prefetch("q", session_id="s")
    made.on_turn_start(1, "m", remaining_tokens=1)
    made.on_session_end([])
    made.on_session_switch("s2", parent_session_id="s1", reset=True)
    made.on_delegation("t", "r", child_session_id="c")
    made.on_memory_write("add", "user", "x", metadata={})
    made.save_config({}, "/nowhere")
    made.shutdown()


def test_what_lacks_a_required_member_is_refused() -> None:
    assert check_memory_provider(object()) == "has no is_available() and no initialize()"
    assert check_memory_provider(type("Half", (), {"is_available": bool, "name": "x"})()) == "has no initialize()"


def test_the_config_selects() -> None:
    made = InMemory()
    assert choose_memory({"memory": made}, {"memory": {"provider": "memory"}}) == (made, "memory.provider names it")
    assert choose_memory({"memory": made}, {}) == (None, "memory.provider is not set")
    assert choose_memory({}, {"memory": {"provider": "gone"}})[1].startswith("memory.provider='gone' is set but no")


GUIDE = """
from agent.memory_provider import MemoryProvider

class MyMemoryProvider(MemoryProvider):
    @property
    def name(self) -> str:
        return "my-memory"

    def is_available(self) -> bool:
        import os
        return bool(os.environ.get("MY_MEMORY_API_KEY"))

    def initialize(self, session_id: str, **kwargs) -> None:
        self._session_id = session_id

    def sync_turn(self, user_message, assistant_response, **kwargs) -> None: ...

    def prefetch(self, query: str, **kwargs) -> str | None: ...

"""
REGISTER = "def register(ctx):\n    ctx.register_memory_provider(MyMemoryProvider())\n"


def write(
    home: Path, place: str, text: str = GUIDE + REGISTER, manifest: str = "name: store\nversion: 1.0.0\n"
) -> None:
    folder = home / "plugins" / place
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(manifest)
    (folder / "__init__.py").write_text(text)


def run(home: Path, provider: str, more: str = "") -> Host:
    (home / "config.yaml").write_text(f"{more}memory:\n  provider: '{provider}'\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()
    return host


@pytest.mark.parametrize(
    ("place", "setting"),
    [("folder", "folder"), ("folder", "store"), ("memory/my-memory", "my-memory"), ("memory/x", "memory/x")],
)
def test_the_plugin_that_the_config_names_is_loaded_wherever_it_lies(
    home: Path, served: None, place: str, setting: str
) -> None:
    write(home, place)
    write(home, "other", manifest="name: other\n")

    host = run(home, setting)

    records = {r.manifest.folder: r for r in host.plugins.records}
    assert (records[place.rpartition("/")[2]].error, host.providers["memory"].names()) == (None, ["my-memory"])
    assert host.providers.choose("memory", host.config.values).provider.name == "my-memory"
    assert (records["other"].enabled, records["other"].error) == (
        False,
        "exclusive plugin — activate via <category>.provider config",
    )


def test_no_plugin_is_loaded_when_the_config_names_none(home: Path, served: None) -> None:
    write(home, "folder")

    host = run(home, "")

    assert [r.status for r in host.plugins.records] == ["not enabled"]
    assert host.providers["memory"].names() == []


def test_a_disabled_one_stays_disabled(home: Path, served: None) -> None:
    write(home, "folder")
    (home / "config.yaml").write_text("memory:\n  provider: store\nplugins:\n  disabled: [store]\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()

    assert [r.status for r in host.plugins.records] == ["disabled"]


def test_one_without_register_has_its_first_class_made(home: Path, served: None) -> None:
    write(home, "bare", GUIDE)

    host = run(home, "bare")

    assert host.providers["memory"].names() == ["my-memory"]
    (record,) = host.plugins.records
    assert [(kind.name, name) for kind, name in record.providers_registered] == [("memory", "my-memory")]


def test_one_without_either_fails_and_says_so(home: Path, served: None) -> None:
    write(home, "empty", "# MemoryProvider\n")

    (record,) = run(home, "empty").plugins.records

    assert (record.status, record.error) == ("failed", "no register() function")


def test_one_that_does_not_inherit_is_taken(home: Path, served: None) -> None:
    text = f"# MemoryProvider\nfrom typing import Any\n{inspect.getsource(Duck)}\n"
    write(home, "duck", f"{text}\ndef register(ctx): ctx.register_memory_provider(Duck())\n")

    host = run(home, "duck")

    assert host.providers.choose("memory", host.config.values)[0].name == "duck"


def test_the_upstream_name_is_this(served: None) -> None:
    from agent.memory_provider import MemoryProvider as upstream

    assert upstream is MemoryProvider


# -- its terminal command --------------------------------------------------------------------------------------------

CLI = """
def register_cli(subparser):
    actions = subparser.add_subparsers(dest="action")
    actions.add_parser("count")
    loud = actions.add_parser("loud")
    loud.set_defaults(func=lambda args: print("LOUD"))

def my_store_command(args):
    print(f"command {args.action}")
    return 3
"""


def terminal(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    capsys.readouterr()
    try:
        status = main(list(argv))
    except SystemExit as exc:  # argparse's own
        status = int(exc.code or 0)
    return status, capsys.readouterr().out


def test_the_chosen_memory_brings_its_terminal_command_and_another_does_not(
    home: Path, served: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("my-store", "other"):
        write(home, name, manifest=f"name: {name}\ndescription: Keeps things\n")
        (home / "plugins" / name / "cli.py").write_text(CLI)
    (home / "config.yaml").write_text("memory:\n  provider: my-store\n")

    assert terminal(capsys, "my-store", "count") == (3, "command count\n")
    assert terminal(capsys, "my-store", "loud") == (0, "LOUD\n")
    assert "Keeps things" in terminal(capsys, "my-store", "--help")[1]
    assert terminal(capsys, "other", "count")[0] == 2

    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()
    ((name, command),) = host.cli_commands.items()
    assert (name, command.help, host.cli_commands.owner(name)) == ("my-store", "Keeps things", "my-store")


def test_a_cli_that_takes_its_parser_for_the_whole_of_hermes_works(
    home: Path, served: None, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, "memory/notes")
    (home / "plugins" / "memory" / "notes" / "cli.py").write_text(
        "def register_cli(subparser):\n"
        "    parser = subparser.add_parser('notes', help='Notes')\n"
        "    parser.add_argument('word')\n"
        "def notes_command(args): print('notes', args.word)\n"
    )
    (home / "config.yaml").write_text("memory:\n  provider: notes\n")

    assert terminal(capsys, "notes", "otter") == (0, "notes otter\n")


def test_a_cli_without_register_cli_is_not_imported(home: Path, served: None) -> None:
    write(home, "folder")
    (home / "plugins" / "folder" / "cli.py").write_text("raise RuntimeError('imported')\n")

    host = run(home, "folder")

    assert (host.plugins.records[0].error, host.cli_commands.names()) == (None, [])


# -- manifests that are no YAML, packages ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["broken", "memory/broken"])
def test_a_manifest_that_is_no_yaml_does_not_stop_the_memory(home: Path, served: None, place: str) -> None:
    write(home, place, manifest="name: [broken\n  kind: : :\n")

    host = run(home, "broken")

    (record,) = host.plugins.records
    assert (record.error, record.manifest.kind, host.plugins.rejected) == (None, "exclusive", [])
    assert host.providers["memory"].names() == ["my-memory"]
    assert record.notes[0].startswith("plugin.yaml: ")


def test_another_plugin_with_such_a_manifest_is_refused(home: Path, served: None) -> None:
    write(home, "broken", "def register(ctx): ...\n", manifest="name: [broken\n  kind: : :\n")

    host = run(home, "broken")

    assert (host.plugins.records, [r.name for r in host.plugins.rejected]) == ([], ["broken"])


def install(site: Path, group: str, line: str, text: str, cli: str = "") -> None:
    package = site / "memory_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    if cli:
        (package / "cli.py").write_text(cli)
    info = site / "memory_package-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: memory-package\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[{group}]\n{line}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    place = tmp_path / "site"
    monkeypatch.syspath_prepend(str(place))
    yield place
    for name in [name for name in sys.modules if name.partition(".")[0] == "memory_package"]:
        del sys.modules[name]


@pytest.mark.parametrize("group", ["hermes_agent.memory_providers", "hermes.memory_provider"])
@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("memory_package", REGISTER),
        ("memory_package", ""),
        ("memory_package:register", REGISTER),
        ("memory_package:MyMemoryProvider", ""),
        ("memory_package:make", "def make(): return MyMemoryProvider()\n"),
        ("memory_package:made", "made = MyMemoryProvider()\n"),
    ],
)
def test_a_package_brings_the_memory_that_the_config_names(
    home: Path, served: None, site: Path, group: str, value: str, more: str
) -> None:
    install(site, group, f"keeper = {value}", GUIDE + more)

    host = run(home, "keeper")

    (record,) = host.plugins.records
    assert (record.error, record.manifest.kind, record.manifest.key) == (None, "exclusive", "memory/keeper")
    assert host.providers.choose("memory", host.config.values).provider.name == "my-memory"


def test_a_package_that_the_config_does_not_name_is_listed_and_not_imported(
    home: Path, served: None, site: Path
) -> None:
    install(site, "hermes_agent.memory_providers", "keeper = memory_package", "raise RuntimeError('imported')\n")

    (record,) = run(home, "").plugins.records

    assert (record.status, record.error) == (
        "not enabled",
        "exclusive plugin — activate via <category>.provider config",
    )


def test_a_package_s_cli_is_its_command(
    home: Path, served: None, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, "hermes.memory_provider", "my-store = memory_package:MyMemoryProvider", GUIDE, CLI)
    (home / "config.yaml").write_text("memory:\n  provider: my-store\n")

    assert terminal(capsys, "my-store", "count") == (3, "command count\n")


def test_a_module_in_both_groups_has_its_tools_once_and_lacks_none(home: Path, served: None, site: Path) -> None:
    schema = "{'name': 'twice', 'description': 'x', 'parameters': {'type': 'object', 'properties': {}}}"
    tool = f"    ctx.register_tool('twice', 'keeper', {schema}, lambda args, **kwargs: '{{}}')\n"
    groups = "keeper = memory_package:register\n[hermes_agent.memory_providers]\nkeeper = memory_package"
    install(site, "hermes_agent.plugins", groups, GUIDE + REGISTER + tool)
    config = "plugins:\n  enabled: [keeper]\n"

    host = run(home, "keeper", config)

    both = {record.manifest.key: record for record in host.plugins.records}
    assert [(key, record.enabled, record.problems) for key, record in both.items()] == [
        ("keeper", True, []),
        ("memory/keeper", True, []),
    ]
    notes = [note for record in both.values() for note in record.notes]
    assert len([note for note in notes if "its package lists it in a second group" in note]) == 1
    assert host.tools.get("twice")


def test_a_plugin_and_a_memory_of_one_name_live_side_by_side(home: Path, served: None, site: Path) -> None:
    install(
        site,
        "hermes_agent.plugins",
        "keeper = memory_package:register\n[hermes_agent.memory_providers]\nkeeper = memory_package",
        GUIDE + REGISTER,
    )

    host = run(home, "keeper")

    assert [(r.manifest.key, r.enabled) for r in host.plugins.records] == [("keeper", False), ("memory/keeper", True)]
