from __future__ import annotations

import json
import math

from builtin_context import context_of
from contracts.terminal_places import program
from hermes_agent import config
from hermes_agent.tools import ToolRegistry
from hermes_agent.workspace import feature


def test_the_schemas_together_are_small(workplace):
    definitions = workplace.registry.get_definitions(workplace.registry.names())

    assert len(json.dumps(definitions, ensure_ascii=False).encode()) <= 4_800


def test_names_toolsets_and_parameters_are_the_contracts(workplace):
    parameters = {
        name: (entry.toolset, list(entry.schema["parameters"]["properties"]), entry.schema["parameters"]["required"])
        for name, entry in workplace.registry.items()
    }

    assert parameters == {
        "read_file": ("file", ["path", "offset", "limit"], ["path"]),
        "write_file": ("file", ["path", "content"], ["path", "content"]),
        "patch": ("file", ["mode", "path", "old_string", "new_string", "replace_all", "patch"], ["mode"]),
        "search_files": (
            "file",
            ["pattern", "target", "path", "file_glob", "limit", "offset", "output_mode", "context"],
            ["pattern"],
        ),
        "terminal": (
            "terminal",
            ["command", "timeout", "background", "pty", "notify_on_complete", "watch_patterns", "workdir"],
            ["command"],
        ),
        "process": ("terminal", ["action", "session_id", "data", "timeout", "offset", "limit"], ["action"]),
    }
    assert workplace.registry.get_max_result_size("read_file") == math.inf


def test_the_tools_belong_to_the_agent(workplace):
    assert workplace.registry.owned_by("builtin") == [
        "read_file",
        "write_file",
        "patch",
        "search_files",
        "terminal",
        "process",
    ]


def test_the_configuration_sets_the_limits(workplace):
    (workplace.home / "config.yaml").write_text(
        "terminal:\n  timeout: 1\n  env_passthrough: [OPENAI_API_KEY]\n"
        "tool_output:\n  max_bytes: 1000\n  max_lines: 10\n  max_line_length: 80\nfile_read_max_chars: 1000\n"
    )
    fresh = ToolRegistry()
    feature.register_tools(
        context_of(fresh), config.load(workplace.home), workplace.home, workplace.cwd, environ=workplace.environ
    )
    workplace.registry.restore(fresh.snapshot())
    (workplace.cwd / "a.txt").write_text(("x" * 100 + "\n") * 50)

    page = workplace.call("read_file", path="a.txt")
    assert page["content"].splitlines()[0] == "1|" + "x" * 80 + "… [20 more characters]"
    assert page["next_offset"] == 10
    assert workplace.call("terminal", command="sleep 30")["error"] == "stopped after 1 s (`timeout`)"
    assert len(workplace.call("terminal", command="yes | head -c 50000")["output"].splitlines()) <= 13
    assert workplace.call("terminal", command='test -n "$OPENAI_API_KEY" && echo there')["output"] == "there\n"


def test_file_tools_act_where_the_commands_run_and_nowhere_else(workplace, tmp_path):
    environ = program(tmp_path, "docker") | {"HOME": str(workplace.cwd.parent)}
    (workplace.home / "config.yaml").write_text("terminal: {backend: docker}\n")
    fresh = ToolRegistry()
    shells = feature.register_tools(
        context_of(fresh), config.load(workplace.home), workplace.home, workplace.cwd, environ=environ
    )
    workplace.registry.restore(fresh.snapshot())
    workplace.person.answer = "deny"
    (workplace.cwd / "here").write_text("of this machine\n")

    assert workplace.call("terminal", command="mkdir sub && cd sub && pwd")["exit_code"] == 0
    assert workplace.call("write_file", path="a.txt", content="one\ntwo\n")["created"] is True
    assert workplace.call("terminal", command="cat a.txt; rm -r ../sub/x; true")["output"].startswith("one\ntwo\n")
    assert workplace.call("read_file", path="a.txt", offset=2)["content"] == "2|two\n"
    assert workplace.call("search_files", pattern="t.o")["matches"].endswith("sub/a.txt:2:two")
    assert workplace.call("search_files", pattern="a", target="files")["files"][0].endswith("sub/a.txt")
    assert "does not exist (docker)" in workplace.call("read_file", path=str(workplace.cwd / "gone"))["error"]
    assert not (workplace.cwd / "a.txt").exists() and workplace.person.asked == []
    shells.close_all()


def test_where_the_backend_is_nobodys_file_tools_touch_nothing(place_with):
    workplace = place_with("terminal: {backend: gone}\n")

    assert "terminal.backend='gone'" in workplace.call("write_file", path="a.txt", content="x")["error"]
    assert "terminal.backend='gone'" in workplace.call("read_file", path="a.txt")["error"]
    assert not (workplace.cwd / "a.txt").exists()
