"""Runs in either interpreter, with the published names alone. Prints microseconds of CPU by measurement as JSON.

python dispatch.py TOOL: `handle_function_call` of that tool of a plugin, with the hooks that the home's plugin has; the
definitions of 520 tools, built anew.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def least_us(call: Callable[[], Any], times: int) -> float:
    """Return the least CPU time of a call over several series, in microseconds."""
    series = []
    for _ in range(10):
        gc.collect()
        began = time.process_time()
        for _ in range(times):
            call()
        series.append((time.process_time() - began) / times * 1e6)
    return min(series)


def main(tool: str) -> dict[str, float]:
    import model_tools
    from hermes_cli.plugins import discover_plugins
    from tools.registry import registry

    discover_plugins()

    def call() -> Any:
        arguments = {"text": "hi", "count": "3"}
        return model_tools.handle_function_call(tool, arguments, task_id="t", session_id="s", tool_call_id="c")

    assert json.loads(call()) == {"ok": True}, call()
    measured = {"call": least_us(call, 2000)}

    def add(name: str) -> None:
        parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        schema = {"name": name, "description": f"Echo tool {name}: returns its text.", "parameters": parameters}
        registry.register(name=name, toolset="bench", schema=schema, handler=lambda args, **kw: '{"ok": true}')

    for number in range(520 - len(model_tools.get_tool_definitions(quiet_mode=True))):
        add(f"bench_{number:03d}")

    def define() -> Any:
        add("bench_000")  # the registry has changed: nothing that is remembered is of use
        return model_tools.get_tool_definitions(quiet_mode=True)

    measured["definitions"] = least_us(define, 10)
    return measured


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = main(sys.argv[1])
    print(json.dumps(found), flush=True)
    os._exit(0)  # the peer has threads that would be waited for
