"""Runs in either interpreter, with the published names alone.

python dispatch.py TOOL: for each line `NAME TIMES` prints the microseconds of CPU of one of so many runs: `call` is
`handle_function_call` of that tool of a plugin, with the hooks that the home's plugin has; `definitions` builds those
of all tools anew; `fill 1` makes them 520.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any, TextIO


def main(tool: str, answers: TextIO) -> None:
    import model_tools
    from hermes_cli.plugins import discover_plugins
    from tools.registry import registry

    discover_plugins()

    def call() -> Any:
        arguments = {"text": "hi", "count": "3"}
        return model_tools.handle_function_call(tool, arguments, task_id="t", session_id="s", tool_call_id="c")

    def add(name: str) -> None:
        parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        schema = {"name": name, "description": f"Echo tool {name}: returns its text.", "parameters": parameters}
        registry.register(name=name, toolset="bench", schema=schema, handler=lambda args, **kw: '{"ok": true}')

    def fill() -> None:
        for number in range(520 - len(model_tools.get_tool_definitions(quiet_mode=True))):
            add(f"bench_{number:03d}")

    def definitions() -> Any:
        add("bench_000")  # the registry has changed: nothing that is remembered is of use
        return model_tools.get_tool_definitions(quiet_mode=True)

    assert json.loads(call()) == {"ok": True}, call()
    measured = {"call": call, "fill": fill, "definitions": definitions}
    for line in sys.stdin:
        name, times = line.split()
        what = measured[name]
        began = time.process_time()
        for _ in range(int(times)):
            what()
        print((time.process_time() - began) / int(times) * 1e6, file=answers, flush=True)


if __name__ == "__main__":
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        main(sys.argv[1], out)
    os._exit(0)  # the peer has threads that would be waited for
