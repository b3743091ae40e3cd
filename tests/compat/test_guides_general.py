"""The general guide, in English and in its older form: every snippet that is a whole plugin is run as it is printed."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from compat.guides import fences, flat, guide, plugin
from hermes_agent.hooks import VALID_HOOKS
from hermes_agent.hooks.catalog import FIRED
from hermes_agent.testing import call, plugin_host

ECHO = "SCHEMA = {'name': 'my_tool', 'description': 'x', 'parameters': {'type': 'object', 'properties': {}}}\n"


@pytest.fixture(scope="module")
def page() -> str:
    return guide("build-a-plugin.en.md")


@pytest.fixture(scope="module")
def older() -> str:
    return guide("build-a-plugin.older.txt")


# -- commands ------------------------------------------------------------------------------------------------


def test_scan_runs_a_tool_and_a_person_is_asked_like_always(page: str, tmp_path: Path) -> None:
    (snippet,) = (s for s in fences(page, "Step 5: Write the registration") if "handle_scan" in s)

    with plugin_host(plugin(tmp_path / "scan", snippet), approvals=lambda request: "once") as host:
        (host.workspace / "found.py").write_text("")
        answer = host.run_command("/scan *.py")
        assert host.commands["scan"].description == "Find files matching a glob"

    assert answer is not None
    assert "./found.py" in json.loads(answer)["output"]


def test_mystatus_answers(page: str, tmp_path: Path) -> None:
    snippet = fences(page, "Register slash commands")[0]

    with plugin_host(plugin(tmp_path / "my-status", snippet)) as host:
        assert host.run_command("/mystatus") == "Plugin status: all systems nominal"
        assert host.run_command("/mystatus help") == "Usage: /mystatus [help|check]"
        assert host.commands["mystatus"].description == "Show plugin status"


def test_check_is_awaited(page: str, tmp_path: Path) -> None:
    snippet = fences(page, "Register slash commands")[1]
    operation = "import asyncio\nasync def some_async_operation():\n    await asyncio.sleep(0)\n    return 'fine'\n"

    with plugin_host(plugin(tmp_path / "check", operation + snippet)) as host:
        assert host.run_command("/check") == "Check result: fine"


def test_a_terminal_command_has_its_subcommands(page: str, tmp_path: Path) -> None:
    (snippet,) = fences(page, "Register CLI commands")
    whole = snippet.replace("    ctx.register_tool(...)\n", "")

    with plugin_host(plugin(tmp_path / "my-plugin", whole)) as host:
        assert host.run_cli(["my-plugin", "status"]).out == "All good!\n"
        assert host.run_cli(["my-plugin", "config"]).out == "Current config: ...\n"
        assert host.run_cli(["my-plugin"]).out == "Usage: hermes my-plugin <status|config>\n"


# -- files, skills, gates ------------------------------------------------------------------------------------


def test_a_data_file_is_read_at_import(page: str, tmp_path: Path) -> None:
    (snippet,) = fences(page, "Ship data files")
    init = (
        f"import yaml\n{snippet}\ndef register(ctx):\n    ctx.register_command('languages', lambda raw: _DATA[raw])\n"
    )

    with plugin_host(plugin(tmp_path / "languages", init, data__languages_yaml="en: English\n")) as host:
        assert host.run_command("/languages en") == "English"


def test_skills_of_a_plugin_are_viewed_by_their_whole_name(page: str, tmp_path: Path) -> None:
    register, view = fences(page, "Bundle skills")
    files = {
        f"skills__{name}__SKILL_md": f"---\nname: {name}\ndescription: the {name}\n---\nDo {name}.\n"
        for name in ("my-workflow", "my-checklist")
    }
    (wanted, missing) = re.findall(r'skill_view\("(.*?)"\)', view)

    with plugin_host(plugin(tmp_path / "my-plugin", register, **files)) as host:
        shown = host.dispatch_tool("skill_view", {"name": wanted})
        bare = host.dispatch_tool("skill_view", {"name": missing})

    assert "Do my-workflow." in shown
    assert "my-checklist" in shown
    assert "error" in json.loads(bare)


def test_the_older_way_copies_a_skill_into_the_home(older: str, tmp_path: Path) -> None:
    first = older.index("Bundle a skill")
    snippet = flat(older[first:], "import shutil", "_install_skill()", "000112212121122011")
    whole = snippet.replace("    ctx.register_tool(...)\n", "")
    assert whole != snippet

    folder = plugin(tmp_path / "my-plugin", whole, skill_md="# How to\n")
    with plugin_host(folder) as host:
        copied = host.home / "skills" / "my-plugin" / "SKILL.md"
        assert copied.read_text() == "# How to\n"


@pytest.mark.parametrize("form", [0, 1])
def test_a_missing_variable_disables_the_plugin_with_the_promised_line(page: str, tmp_path: Path, form: int) -> None:
    requires = fences(page, "Gate on environment variables", "yaml")[form]
    folder = plugin(tmp_path / "weather", "def register(ctx): pass\n", f"name: weather\n{requires}")

    with plugin_host(folder, strict=False) as host:
        assert host.record.error == "Plugin weather disabled (missing: WEATHER_API_KEY)"
        assert (
            "WARNING hermes_agent.plugins.manager: Plugin weather disabled (missing: WEATHER_API_KEY)" in host.log_text
        )
    with plugin_host(folder, env={"WEATHER_API_KEY": "a-key"}) as host:
        assert host.record.enabled


def test_the_optional_fields_of_the_manifest_are_read(page: str, tmp_path: Path) -> None:
    manifest, optional = fences(page, "Step 2: Write the manifest", "yaml")
    folder = plugin(tmp_path / "calculator", "def register(ctx): pass\n", manifest + optional)

    with plugin_host(folder, strict=False) as host:
        assert host.record.error == "Plugin calculator disabled (missing: SOME_API_KEY, OTHER_KEY)"
        assert host.record.manifest.author == "Your Name"
    with plugin_host(folder, env={"SOME_API_KEY": "a-key", "OTHER_KEY": "another"}) as host:
        assert host.record.enabled


def test_a_tool_without_a_toolset_is_hidden_while_its_check_says_no(page: str, tmp_path: Path) -> None:
    (snippet,) = fences(page, "Conditional tool availability")
    body = snippet.replace("{...}", "SCHEMA").replace("\n", "\n    ")
    before = (
        ECHO + "def my_handler(args, **kwargs): return '{}'\ndef _has_optional_lib(): return there\nthere = {there}\n"
    )
    for there in (False, True):
        init = f"{before.replace('{there}', str(there))}def register(ctx):\n    {body}\n"
        with plugin_host(plugin(tmp_path / str(there) / "optional", init)) as host:
            assert ("my_tool" in host.visible_tools) is there
            assert host.tools["my_tool"].toolset == "optional"


# -- hooks ---------------------------------------------------------------------------------------------------


def test_several_hooks_are_called(page: str, tmp_path: Path) -> None:
    (snippet,) = fences(page, "Register multiple hooks")
    names = re.findall(r", (\w+)\)", snippet)
    functions = "".join(f"def {n}(**kwargs): seen.append('{n}')\n" for n in names)

    with plugin_host(plugin(tmp_path / "hooks", f"seen = []\n{functions}{snippet}"), model=["hello"]) as host:
        host.model.say()
        host.ask("hi")
        assert host.module.seen == ["on_new_session", "inject_memory", "on_session_end"]
        host.dispatch_tool("read_file", {"path": "x"})
        assert host.module.seen[3:] == ["before_any_tool", "after_any_tool"]


def test_both_forms_of_an_answer_are_added_to_the_message_and_none_is_not(page: str, tmp_path: Path) -> None:
    (forms,) = fences(page, "Return format")
    returns = re.findall(r"^return .*$", forms, re.MULTILINE)
    folders = [
        plugin(
            tmp_path / f"p{i}",
            f"def answer(**kwargs):\n    {line}\ndef register(ctx): ctx.register_hook('pre_llm_call', answer)\n",
        )
        for i, line in enumerate(returns)
    ]

    with plugin_host(*folders, model=["fine"]) as host:
        host.ask("hello")

        dark = "- User prefers dark mode"
        assert host.model.messages[-1]["content"] == (
            f"hello\n\nRecalled memories:\n{dark}\n- Last project: hermes-agent\n\nRecalled memories:\n{dark}"
        )
        stored = host.host.open_transcript()
        texts = [m.text for m in stored.messages(host.conversation.session_id)]
        stored.close()
        assert texts == ["hello", "fine"]


class _Memories(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)  # type: ignore[attr-defined]
        found = [{"text": "likes tea"}, {"text": "lives by the sea"}] if "tea" in asked["query"] else []
        body = json.dumps({"results": found}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def memories() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), _Memories)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_memories_are_recalled(page: str, tmp_path: Path, memories: HTTPServer) -> None:
    (snippet,) = fences(page, "Example: Memory recall plugin")

    with plugin_host(plugin(tmp_path / "memory-recall", snippet), model=["ok", "ok", "ok"]) as host:
        host.module.MEMORY_API = f"http://127.0.0.1:{memories.server_address[1]}"
        host.ask("What about tea?")
        assert host.model.messages[-1]["content"] == (
            "What about tea?\n\nRecalled context from previous sessions:\n- likes tea\n- lives by the sea"
        )
        host.ask("Anything else?")
        assert host.model.messages[-1]["content"] == "Anything else?"
        assert [set(a) for a in memories.asked] == [{"session_id", "query"}] * 2  # type: ignore[attr-defined]
        host.module.MEMORY_API = "http://127.0.0.1:1"
        assert host.ask("And tea?").text == "ok"


def test_guardrails_are_added_to_every_turn(page: str, tmp_path: Path) -> None:
    (snippet,) = fences(page, "Example: Guardrails plugin")

    with plugin_host(plugin(tmp_path / "guardrails", snippet), model=["ok", "ok"]) as host:
        for question in ("one", "two"):
            host.ask(question)
            assert host.model.messages[-1]["content"] == f"{question}\n\n{host.module.POLICY}"
        assert host.model.messages[0]["role"] == "system"
        assert host.module.POLICY not in host.model.messages[0]["content"]


def test_an_observer_adds_nothing(page: str, tmp_path: Path) -> None:
    (snippet,) = fences(page, "Example: Observer-only hook (no injection)")

    with plugin_host(plugin(tmp_path / "analytics", snippet), model=["ok"]) as host:
        host.ask("hello")
        assert host.model.messages[-1]["content"] == "hello"
        session = host.conversation.session_id
        line = f"Turn: session={session} model=scripted-model first=True msg_len=5"
        assert f"INFO hermes_plugins.analytics: {line}" in host.log_text


@pytest.mark.parametrize("title", ["memory", "guardrails", "observer"])
def test_the_older_guide_has_the_same_three(page: str, older: str, title: str) -> None:
    heading, first, last = {
        "memory": (
            "Example: Memory recall plugin",
            '"""Memory plugin — recalls relevant context from a vector store."""',
            'ctx.register_hook("pre_llm_call", recall_context)',
        ),
        "guardrails": (
            "Example: Guardrails plugin",
            '"""Guardrails plugin — enforces content policies."""',
            'ctx.register_hook("pre_llm_call", inject_guardrails)',
        ),
        "observer": (
            "Example: Observer-only hook (no injection)",
            '"""Analytics plugin — tracks turn metadata without injecting context."""',
            'ctx.register_hook("pre_llm_call", log_turn)',
        ),
    }[title]
    (snippet,) = fences(page, heading)
    lines = older.splitlines()
    start = lines.index(first)
    block = lines[start : lines.index(last, start) + 1]

    assert " ".join("\n".join(block).split()) == " ".join(snippet.split())


# -- publishing ----------------------------------------------------------------------------------------------


def test_the_entry_point_of_the_guide_is_found(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toml,) = fences(page, "Distribute via pip", "toml")
    name, value = re.findall(r'^([\w-]+) = "(\w+)"$', toml, re.MULTILINE)[0]
    package = tmp_path / value
    package.mkdir()
    (package / "__init__.py").write_text("def register(ctx): ctx.register_command('mine', str)\n")
    metadata = tmp_path / "hermes_plugin_calculator-1.0.dist-info"
    metadata.mkdir()
    group = re.search(r'entry-points\."(.*?)"', toml)
    assert group is not None
    (metadata / "entry_points.txt").write_text(f"[{group[1]}]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with plugin_host(value) as host:
        assert host.keys == (name,)
        assert list(host.commands) == ["mine"]


# -- common mistakes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mistakes(page: str) -> list[list[str]]:
    """The two handlers of each snippet, the wrong one first."""
    return [re.findall(r"^def handler.*?(?=^#|\Z)", s, re.M | re.S) for s in fences(page, "Common mistakes")[:3]]


def run_handler(folder: Path, handler: str, arguments: dict[str, Any]) -> dict[str, Any]:
    init = f"import json\n{ECHO}{handler}\ndef register(ctx): ctx.register_tool('my_tool', 'mine', SCHEMA, handler)\n"
    with plugin_host(plugin(folder, init)) as host:
        result: dict[str, Any] = json.loads(host.dispatch_tool("my_tool", arguments))
        return result


def test_a_handler_that_returns_a_dict_is_told(mistakes: list[list[str]], tmp_path: Path) -> None:
    wrong, right = mistakes[0]
    assert run_handler(tmp_path / "wrong", wrong, {}) == {
        "error": "Tool handler returned unsupported result type: dict",
        "error_type": "tool_result_contract",
        "tool": "my_tool",
        "result_type": "dict",
    }
    assert run_handler(tmp_path / "right", right, {}) == {"result": 42}


def test_a_handler_without_keywords_works_all_the_same(mistakes: list[list[str]], tmp_path: Path) -> None:
    for name, handler in zip(("wrong", "right"), mistakes[1], strict=True):
        assert run_handler(tmp_path / name, handler.replace("...", "return json.dumps(args)"), {"a": 1}) == {"a": 1}


def test_a_handler_that_raises_is_contained(mistakes: list[list[str]], tmp_path: Path) -> None:
    wrong, right = mistakes[2]
    assert run_handler(tmp_path / "wrong", wrong, {"value": 0}) == {
        "error": "[TOOL_ERROR] Tool execution failed: ZeroDivisionError: division by zero"
    }
    assert run_handler(tmp_path / "right", right, {"value": 0}) == {"error": "division by zero"}


async def test_two_plugins_may_answer_from_one_loop(page: str, tmp_path: Path) -> None:
    """The guide's handlers, sync and async, in a test that has a loop of its own."""
    snippets = fences(page, "Register slash commands")
    operation = "async def some_async_operation(): return 'fine'\n"
    folders = [plugin(tmp_path / "one", snippets[0]), plugin(tmp_path / "two", operation + snippets[1])]

    async def both() -> list[str | None]:
        with plugin_host(*folders, model=[call("read_file", path="x"), "done"]) as host:
            assert host.ask("go").text == "done"
            return [host.run_command("/mystatus"), host.run_command("/check")]

    assert await both() == ["Plugin status: all systems nominal", "Check result: fine"]


@pytest.mark.parametrize("name", ["build-a-plugin.en.md", "build-a-plugin.older.txt"])
def test_every_hook_of_the_guide_s_table_gets_what_its_row_says(name: str, tmp_path: Path) -> None:
    rows = re.findall(
        r"^\|? ?\[?`?(\w+)`?\]?(?:\(\S+\))? ?\|[^|\n]*\|((?:[^|\n]|\\\|)*)\|[^|\n]*\|?$", guide(name), re.M
    )
    printed = {hook: set(re.findall(r"(\w+): \w", signature)) for hook, signature in rows if hook in VALID_HOOKS}
    assert len(printed) == 8
    functions = "".join(
        f"def {hook}({', '.join(sorted(names))}, **kwargs):\n    seen['{hook}'] = 1\n"
        for hook, names in printed.items()
    )
    wiring = "".join(f"    ctx.register_hook('{hook}', {hook})\n" for hook in printed)
    init = f"seen = {{}}\n{functions}def register(ctx):\n{wiring}"

    with plugin_host(plugin(tmp_path / "all-hooks", init), model=[call("read_file", path="x"), "done"]) as host:
        host.ask("hello")
        host.new_session()
        in_a_turn = set(printed) & FIRED - {"on_session_finalize", "on_session_reset"}
        assert set(host.module.seen) >= in_a_turn, "each was called, with every keyword that it names"
        for hook in printed:
            host.fire(hook)
        assert set(host.module.seen) == set(printed)
        assert "raised" not in host.log_text
