"""What a plugin did and cost is counted by whoever calls it, and shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

from hermes_agent.commands import run_command
from hermes_agent.core.messages import new_id
from hermes_agent.host import Host
from hermes_agent.plugins.usage_account import MAX_NOTES, UsageAccount, metrics_text

PLUGIN = """
def good(args, **kwargs): return "fine"
def odd(args, **kwargs): return 7
def bad(args, **kwargs): raise KeyError("gone")
def watch(**kwargs):
    if kwargs["tool_name"] == "bad":
        raise ValueError("no eyes")
def register(ctx):
    for handler in (good, odd, bad):
        name = handler.__name__
        ctx.register_tool(name, "busy", {"name": name, "description": name}, handler)
    ctx.register_hook("post_tool_call", watch)
"""


async def test_calls_errors_and_time_are_counted_per_plugin_and_shown(
    write_plugin: Callable[..., Path], start: Callable[..., Host]
) -> None:
    write_plugin("busy", PLUGIN)
    write_plugin("idle")
    host = start(enable=("busy", "idle"))
    call = host.plugins.contexts["idle"].dispatch_tool

    results = [json.loads(call(name)) if name != "good" else call(name) for name in ("good", "good", "odd", "bad")]
    call("search_files", {"pattern": "x", "target": "files"})

    assert results[2]["error_type"] == "tool_result_contract"
    tally = host.account.usage_of("busy")
    assert (tally.tool_calls, tally.tool_errors) == (4, 2)
    assert (tally.hook_calls, tally.hook_errors) == (5, 1)
    assert tally.tool_seconds > 0
    assert tally.hook_seconds > 0
    assert tally.last_error == "hook post_tool_call: ValueError('no eyes')"
    assert set(host.account.usage_by_plugin()) == {"busy"}  # neither the idle plugin nor the agent's own tool
    command = host.commands.find("plugins", "terminal")
    assert command is not None
    shown = (await run_command(command, "busy", host.bridge)).text or ""
    assert shown.startswith("  ✓ busy (3 tools, 1 hooks)\n")
    assert "      tools: good, odd, bad" in shown
    assert "      so far: tools: 4 calls, 2 errors, " in shown
    assert "      so far: last error of 3: hook post_tool_call: ValueError('no eyes')" in shown
    unknown = await run_command(command, "bus", host.bridge)
    text = "There is no plugin `bus` (did you mean `busy`?). `/plugins` lists the plugins."
    assert (unknown.text, unknown.has_failed) == (text, True)
    assert 'hermes_plugin_errors_total{plugin="busy"} 3' in metrics_text(host.account.usage_by_plugin())


def test_a_hook_that_is_left_behind_is_an_error_at_once_and_a_call_when_it_ends(
    write_plugin: Callable[..., Path], start: Callable[..., Host]
) -> None:
    write_plugin(
        "slow",
        """
        import threading
        may_end, ended = threading.Event(), threading.Event()
        def hang(**kwargs):
            may_end.wait()
            ended.set()
        def register(ctx):
            ctx.register_hook("transform_tool_result", hang)
        """,
    )
    host = start("plugins:\n  enabled: [slow]\n  hook_timeout_s: 0.1\n")
    host.plugins.contexts["slow"].dispatch_tool("search_files", {"pattern": "x", "target": "files"})

    tally = host.account.usage_of("slow")
    assert (tally.hook_calls, tally.hook_errors) == (0, 1)
    assert tally.last_error == "hook transform_tool_result: gave no answer within 0.1 s"
    module = host.plugins._plugins["slow"].module
    module.may_end.set()
    assert module.ended.wait(10)


def test_no_note_of_many_threads_is_lost_and_none_piles_up() -> None:
    account = UsageAccount()
    each = 3 * MAX_NOTES

    def work() -> None:
        for _ in range(each):
            account.tool("p", "t", 0.5, "")

    threads = [threading.Thread(target=work, name=new_id("t")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(account._notes) < MAX_NOTES
    tally = account.usage_of("p")
    assert (tally.tool_calls, tally.tool_seconds) == (4 * each, 2.0 * each)
