from __future__ import annotations

import json
import math

from hermes_agent import config
from hermes_agent.tools import ToolRegistry
from hermes_agent.workspace import tools


def test_the_schemas_together_are_small(workplace):
    definitions = workplace.registry.get_definitions(workplace.registry.names())

    assert len(json.dumps(definitions, ensure_ascii=False).encode()) <= 4_000


def test_names_toolsets_and_parameters_are_the_contracts(workplace):
    parameters = {
        name: (entry.toolset, list(entry.schema["parameters"]["properties"]), entry.schema["parameters"]["required"])
        for name, entry in workplace.registry.items()
    }

    assert parameters == {
        "read_file": ("file", ["path", "offset", "limit"], ["path"]),
        "write_file": ("file", ["path", "content"], ["path", "content"]),
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
    assert workplace.registry.owned_by("builtin") == ["read_file", "write_file", "search_files", "terminal", "process"]


def test_the_configuration_sets_the_limits(workplace):
    (workplace.home / "config.yaml").write_text(
        "terminal:\n  timeout: 1\n  env_passthrough: [OPENAI_API_KEY]\n"
        "tool_output:\n  max_bytes: 1000\n  max_lines: 10\n  max_line_length: 80\nfile_read_max_chars: 1000\n"
    )
    fresh = ToolRegistry()
    tools.register(fresh, config.load(workplace.home), workplace.home, environ=workplace.environ)
    workplace.registry.restore(fresh.snapshot())
    (workplace.cwd / "a.txt").write_text(("x" * 100 + "\n") * 50)

    page = workplace.call("read_file", path="a.txt")
    assert page["content"].splitlines()[0] == "1|" + "x" * 80 + "… [20 more characters]"
    assert page["next_offset"] == 10
    assert workplace.call("terminal", command="sleep 30")["error"] == "stopped after 1 s (`timeout`)"
    assert len(workplace.call("terminal", command="yes | head -c 50000")["output"].splitlines()) <= 13
    assert workplace.call("terminal", command='test -n "$OPENAI_API_KEY" && echo there')["output"] == "there\n"
