"""The comparison of plugins from repositories finds them, asks them all, and says what differs."""

from __future__ import annotations

import copy
import json
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

from compat.corpus.lists import DATA
from compat.repositories import record
from compat.repositories.__main__ import OURS, Program, differences
from compat.repositories.find import RepositoryPlugin, find_plugins
from compat.repositories.run import normal, read_only

PLUGIN = """
def greet(args, **kwargs):
    return '{"hello": "' + args.get("name", "") + '"}'

def listen(**kwargs):
    return None

def register(ctx):
    ctx.register_tool("greet", "mine", {
        "name": "greet", "description": "Greets.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }, greet)
    ctx.register_hook("on_session_start", listen)
    ctx.register_command("hello", lambda words: f"hello {words}")
    ctx.register_command("program", lambda words: __import__("sys").executable)
"""

DNS_ERRORS = ("Temporary failure in name resolution", "Could not contact DNS servers")
"""What aiohttp says without a network: with the resolver of the C library, and with aiodns."""


def repository(place: Path, source: str = PLUGIN) -> RepositoryPlugin:
    folder = place / "owner+name" / "plugin"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: greets\nversion: 1\nrequires_env: [GREETS_KEY]\n")
    (folder / "__init__.py").write_text(source)
    [found] = find_plugins(place)
    return found


def test_plugins_are_found_with_how_they_are_installed(tmp_path: Path) -> None:
    repository(tmp_path)
    memory = tmp_path / "owner+memory"
    (memory / "node_modules" / "x").mkdir(parents=True)
    for folder, text in (
        (memory, "class A(MemoryProvider): ..."),
        (memory / "node_modules" / "x", ""),
    ):
        (folder / "plugin.yml").write_text("name: remembers\n")
        (folder / "__init__.py").write_text(text)
    package = tmp_path / "owner+package"
    (package / "src").mkdir(parents=True)
    (package / "pyproject.toml").write_text('[project.entry-points."hermes_agent.plugins"]\nmine = "mine:register"\n')
    (package / "profile").mkdir()
    (package / "profile" / "plugin.yaml").write_text("kind: model-provider\n")
    (package / "profile" / "__init__.py").write_text("")

    found = {p.key: (p.mode, p.name, p.env, p.entry_points) for p in find_plugins(tmp_path)}

    assert found == {
        "owner+memory:.": ("dir-memory", "remembers", (), ()),
        "owner+name:plugin": ("dir", "greets", ("GREETS_KEY",), ()),
        "owner+package:.!": ("entrypoint", "mine", (), ("mine = mine:register",)),
        "owner+package:profile": ("dir-provider", "profile", (), ()),
    }


def test_a_plugin_is_loaded_called_and_compared_with_its_record(tmp_path: Path) -> None:
    place = tmp_path / "repositories"
    plugin = repository(place)
    bases = tmp_path / "bases"
    bases.mkdir()
    ours = Program.of(OURS, "", bases, place)
    answer = ours.ask(plugin, place)
    expected: dict[str, Any] = ours.summary(answer) | {"source": record.digest(plugin, place), "commit": "c", "log": []}

    assert sorted(expected["registered"]) == ["commands", "hooks", "plugins", "tools", "toolsets"]
    assert '{\\"hello\\": \\"hello\\"}' in expected["calls"]["tool greet sample"]
    assert {"tool greet empty", "command hello 'status'", "invoke on_session_start"} <= set(expected["calls"])
    assert '"$PYTHON"' in expected["calls"]["command program ''"]
    assert list(differences(ours, plugin, place, expected)) == []

    changed = copy.deepcopy(expected)
    changed["registered"]["tools"]["greet"]["toolset"] = "other"
    del changed["registered"]["hooks"]
    changed["calls"]["tool greet sample"] = "000000000000 another answer"
    assert record.compared(changed, expected) == [
        "hooks is too much",
        "tools.greet.toolset: other there, mine here",
        f"call tool greet sample: another answer there, {expected['calls']['tool greet sample'][13:]} here",
    ]
    (place / "owner+name" / "plugin" / "__init__.py").write_text(PLUGIN + "# later\n")
    [line] = differences(ours, plugin, place, expected)
    assert line == "this is another version than the recorded one, commit c"


def test_an_error_of_the_host_in_the_log_is_a_difference_and_one_of_a_plugin_is_not() -> None:
    ours = {"text": "it failed", "raised": "TypeError: no", "frames": ["/x/hermes/hermes_agent/tools/a.py"]}
    theirs = ours | {"raised": "ValueError: bad", "frames": ["/home/plugins/p/__init__.py"]}

    assert record.host_errors({"log": [ours, theirs, {"text": "said"}]}, []) == ["log: it failed: TypeError: no"]
    assert record.host_errors({"log": [ours]}, ["TypeError: no"]) == []


def test_each_recorded_plugin_loads_there_at_a_commit_and_is_the_same_as_itself() -> None:
    known = record.read()

    assert len(known) > 40
    assert {key for key, entry in known.items() if not record.loads(entry) or len(entry["commit"]) != 40} == set()
    assert [line for entry in known.values() for line in record.compared(entry, entry)] == []


def test_a_known_difference_is_no_difference_and_one_that_is_gone_is_stale() -> None:
    there, here = ({"registered": {}, "calls": {"tool a": f"000000000000 {text}"}} for text in ("x", "y"))

    assert record.compared(there, here, {"tool a": "why"}) == []
    assert record.compared(there, here | {"calls": {}}, {"tool a": "why"}) == []
    assert record.compared(there, there, {"tool a": "why"}) == [
        "call tool a: it is the same, so repositories.toml is stale"
    ]
    known = record.read()
    listed = [(k, what) for k, reasons in record.known_differences().items() for what in reasons]
    assert [(k, w) for k, w in listed if w not in known[k]["calls"] and not w.startswith("registered ")] == []

    more = here | {"registered": {"tools": {"b": {}}}, "calls": there["calls"]}
    assert record.compared(there, more, {"registered tools": "why"}) == []
    assert record.compared(there, more, {}) == ["tools is too much"]
    assert record.compared(there, there, {"registered tools": "why"}) == [
        "registered tools: it is the same, so repositories.toml is stale"
    ]


def test_a_date_in_words_is_the_same_on_each_day() -> None:
    assert normal("on Friday, 27 November 2026") == normal("on Saturday, 1 May 2027") != normal("on Friday")
    assert normal("Friday 2026-11-27 10:00:00 UTC") == normal("Sunday 2026-11-29 11:00:00 UTC") == '"$TIME UTC"'
    assert normal("2026-11-27 10:00 UTC 星期五") == normal("2026-11-28 11:00 UTC 星期六") == '"$TIME UTC"'


def test_a_missing_network_is_the_same_with_either_resolver_of_aiohttp() -> None:
    there, here = (f"Cannot connect to host x.org:443 ssl:default [{why}]" for why in DNS_ERRORS)
    assert normal({"error": there}) == normal({"error": here}) != normal({"error": there.replace("x.org", "y.org")})


def test_what_this_program_adds_to_an_error_of_a_missing_argument_is_left_out() -> None:
    theirs = {"error": "[TOOL_ERROR] Tool execution failed: KeyError: 'a'"}
    for more in (" (`a` is required and was not given)", " (`a`, `b` are required and were not given)"):
        assert normal({"error": theirs["error"] + more}) == normal(theirs)


def test_the_record_is_stored_as_it_is_written() -> None:
    text = record.RECORD.read_text(encoding="utf-8")

    assert record.written(json.loads(text)) == text


def test_the_command_explains_the_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "compat.repositories", str(tmp_path), "--help"],
        cwd=DATA.parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0
    assert "OWNER+NAME" in done.stdout


def test_a_plugin_cannot_write_to_the_packages_of_the_interpreter(tmp_path: Path) -> None:
    """As one does that installs a `.pth` file at its first load."""
    source = """
import site
from pathlib import Path

def register(ctx):
    file = Path(site.getsitepackages()[0], "of_a_compared_plugin.txt")
    try:
        file.write_text("here")
    except OSError:
        ctx.register_command("refused", lambda words: "")
"""
    plugin = repository(tmp_path / "repositories", source)
    file = Path(site.getsitepackages()[0], "of_a_compared_plugin.txt")
    try:
        (tmp_path / "bases").mkdir()
        program = Program.of(OURS, "", tmp_path / "bases", tmp_path / "repositories")
        answer = program.ask(plugin, tmp_path / "repositories")
        is_protected = bool(read_only(OURS))  # it needs rights that not every machine gives
        assert ("refused" in answer["registered"]["commands"]) is is_protected
        assert file.exists() is not is_protected
    finally:
        file.unlink(missing_ok=True)


def test_of_a_toolset_of_the_agent_only_the_tools_that_a_plugin_adds_are_compared() -> None:
    base = {"registered": {"toolsets": {"file": ["read_file"], "web": ["web_search"]}}}
    answer = {"registered": {"toolsets": {"file": ["mine", "read_file"], "web": ["web_search"], "own": ["other"]}}}

    assert record.summary(answer | {"calls": {}}, base)["registered"] == {
        "toolsets": {"file": ["mine"], "own": ["other"]}
    }


def test_a_tool_that_replaces_one_of_the_agent_is_compared_as_the_plugins(tmp_path: Path) -> None:
    """The published program has tools that this one lacks, so that a plugin replaces them there and adds them here."""
    mine, other = {"toolset": "web", "handler": "mine"}, {"toolset": "web", "handler": "other"}
    answer = {"registered": {"tools": {"web_search": mine}, "toolsets": {"web": ["web_search"]}}, "calls": {}}
    there = {"registered": {"tools": {"web_search": other}, "toolsets": {"web": ["web_search"]}}}

    assert record.summary(answer, there) == record.summary(answer, {"registered": {}})

    place = tmp_path / "repositories"
    plugin = repository(place)
    (tmp_path / "bases").mkdir()
    ours = Program.of(OURS, "", tmp_path / "bases", place)
    ours.base["registered"]["tools"]["greet"] = other
    ours.file.write_text(json.dumps(ours.base), encoding="utf-8")
    assert "tool greet sample" in ours.ask(plugin, place)["calls"]
