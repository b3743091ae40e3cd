"""A plugin whose hooks ran over their deadline too often is shown as suspended, with the reason, wherever one looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hermes_agent.app.daemon import _status_line
from hermes_agent.app.daemon_process import _counts
from hermes_agent.host import Host

HANGS = """
import threading
may_end = threading.Event()
def register(ctx):
    for _ in range(3):
        ctx.register_hook("transform_tool_result", lambda **kw: may_end.wait(20))
"""


def test_it_is_shown_in_the_list_at_the_start_and_by_the_daemon(
    write_plugin: Callable[..., Path], start: Callable[..., Host]
) -> None:
    write_plugin("slow", HANGS)
    host = start("plugins:\n  enabled: [slow]\n  hook_timeout_s: 0.1\n")
    assert host.plugins.suspensions() == []
    assert _counts(host)["plugins_suspended"] == 0

    host.plugins.contexts["slow"].dispatch_tool("search_files", {"pattern": "x", "target": "files"})

    (line,) = host.plugins.suspensions()
    assert line == (
        "the hooks of plugin `slow` are suspended until the next start, its guards block: 3 calls of its hooks ran "
        "over their deadline, the last one was transform_tool_result (0.1 s). If it may take longer, raise "
        "plugins.entries.slow.hook_timeout_s"
    )
    assert f"  ! {line}" in host.plugins.status_text().splitlines()
    assert line in host.plugins.hints()
    assert f"      ! {line}" in host.plugins.plugin_text("slow").splitlines()
    assert _counts(host)["plugins_suspended"] == 1
    assert "1 suspended" in _status_line("ready", lambda: _counts(host), 0, "")
    host.plugins._plugins["slow"].module.may_end.set()
