"""What is wrong with the plugins of a running process, with the plugin, the reason and the place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from hermes_agent.app.control_operations import troubles_as_json
from hermes_agent.host import Host

SLOW = """
import threading
may_end, entered = threading.Event(), threading.Event()
def hang(**kwargs):
    may_end.wait()
async def block():
    entered.set()
    may_end.wait()
def register(ctx):
    ctx.register_hook("transform_tool_result", hang)
"""
SETTINGS = "plugins:\n  enabled: [slow, digger, breaks]\n  hook_timeout_s: 0.1\n"


def states(host: Host) -> dict[str, tuple[str, str]]:
    return {one["plugin"]: (one["state"], one["reason"]) for one in troubles_as_json(host)}


def test_a_plugin_that_fails_a_thread_that_dies_and_a_call_that_hangs_are_named_with_their_place(
    write_plugin: Callable[..., Path], start: Callable[..., Host]
) -> None:
    folder = write_plugin("slow", SLOW)
    write_plugin("breaks", "def register(ctx): raise ValueError('no luck')\n")
    write_plugin("digger", "def register(ctx): pass\n")
    host = start(SETTINGS)
    assert states(host) == {"breaks": ("failed", next(r.failure for r in host.plugins.records if r.error))}

    host.account.fault("digger", "thread digger: RuntimeError('in the dark')")
    host.plugins.contexts["slow"].dispatch_tool("search_files", {"pattern": "x", "target": "files"})
    found = states(host)

    assert "ValueError: no luck" in found["breaks"][1]
    assert found["digger"] == (
        "errors",
        "1 errors in its threads and checks, the last: thread digger: RuntimeError('in the dark')",
    )
    assert found["slow"][0] == "stalled"
    assert f"{folder / '__init__.py'}:5 (hang)" in found["slow"][1]
    host.plugins._plugins["slow"].module.may_end.set()


def test_a_coroutine_that_blocks_the_loop_of_all_plugins_is_named_and_is_gone_when_it_ends(
    write_plugin: Callable[..., Path], start: Callable[..., Host]
) -> None:
    folder = write_plugin("slow", SLOW)
    host = start(SETTINGS.replace(", digger, breaks", ""))
    module = host.plugins._plugins["slow"].module
    waiting = threading.Thread(target=lambda: host.bridge.wait_plugin(module.block()))
    waiting.start()
    assert module.entered.wait(10)

    state, reason = states(host)["slow"]
    module.may_end.set()
    waiting.join()

    assert state == "stalled"
    assert f"{folder / '__init__.py'}:8 (block)" in reason
    assert states(host) == {}
