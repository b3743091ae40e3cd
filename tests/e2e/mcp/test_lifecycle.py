"""Servers that crash, hang, talk nonsense, change and end: the host and the others go on, and nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.mcp.conftest import mcp_config, plain, quiet, result, shown, until
from hermes_agent.mcp.servers import McpServers
from hermes_agent.testing import PluginHost, call, plugin_host

mcp = pytest.importorskip("mcp")

NONSENSE = "import sys, itertools\nfor n in itertools.count(): print('nonsense', n, 'x' * 1000, file=sys.{0})"


@contextlib.contextmanager
def hosting(**servers: Any) -> Iterator[PluginHost]:
    with plugin_host(quiet, config=mcp_config(**servers)) as host:
        host.host.service(McpServers).wait_connected(60)
        yield host


def states(host: PluginHost) -> dict[str, str]:
    return {one.name: one.state for one in host.host.service(McpServers).status()}


def test_a_server_that_crashes_in_a_call_is_connected_again_and_leaves_nothing() -> None:
    with hosting(weather=plain()) as host:
        child = int(shown(result(host, "child")))
        assert "was lost while it worked (its program ended with status 3)" in result(host, "crash")
        assert shown(result(host, "say", text="again")) == "test: again"
        until(lambda: not Path(f"/proc/{child}").exists())
        last = int(shown(result(host, "child")))
    until(lambda: not Path(f"/proc/{last}").exists())


def test_a_call_that_hangs_is_cancelled_with_the_turn_and_reaches_the_server(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with hosting(weather=plain()) as host:
        host.model.say(call("mcp__weather__hang", note=str(note)), "done")
        answers: list[Any] = []
        turn = threading.Thread(target=lambda: answers.append(host.ask("go")))
        turn.start()
        until(lambda: note.exists() and note.read_text() == "begun")
        host.conversation.interrupt()
        turn.join(60)
        assert answers[0].reason == "interrupted"
        until(lambda: note.read_text() == "cancelled")
        assert shown(result(host, "say", text="well")) == "test: well"


def test_after_three_calls_without_an_answer_the_server_is_left_alone_and_the_other_goes_on(tmp_path: Path) -> None:
    with hosting(weather=plain(timeout=1), other=plain(env={"TEST_NAME": "other"})) as host:
        for _ in range(3):
            assert "did not answer within 1 s" in result(host, "hang", note=str(tmp_path / "note"))
        told = result(host, "say", text="x")
        assert "failed 3 times in a row" in told and "go on without it" in told
        assert "other: yes" in host.dispatch_tool("mcp__other__say", {"text": "yes"})


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_server_that_floods_harms_nobody(stream: str) -> None:
    flood = {"command": sys.executable, "args": ["-c", NONSENSE.format(stream)], "connect_timeout": 2}
    with hosting(flood=flood, weather=plain()) as host:
        assert states(host) == {"flood": "lost", "weather": "connected"}
        assert shown(result(host, "say", text="well")) == "test: well"
        error = next(one.error for one in host.host.service(McpServers).status() if one.name == "flood")
        assert "no messages" in error if stream == "stdout" else "no connection within 2 s" in error


def test_what_cannot_be_started_says_why_and_is_tried_again(tmp_path: Path) -> None:
    weather = tmp_path / "weather"
    with hosting(
        weather={"command": str(weather)}, wrong={"command": "x", "env": {"KEY": "${NOBODY_SET_THIS}"}}
    ) as host:
        errors = {one.name: one.error for one in host.host.service(McpServers).status()}
        assert "No such file" in errors["weather"]
        assert "NOBODY_SET_THIS" in errors["wrong"]
        weather.write_text(f"#!/bin/sh\nexec {sys.executable} {plain()['args'][1]}\n")
        weather.chmod(0o755)
        until(lambda: states(host)["weather"] == "connected")
        assert shown(result(host, "say", text="here")) == "test: here"
        assert len((host.host.tools.get_schema("mcp__weather__say") or {})["description"]) == 2000


def test_a_server_that_nobody_asks_sleeps_until_somebody_does() -> None:
    with hosting(weather=plain(idle_timeout_seconds=0.5)) as host:
        until(lambda: states(host)["weather"] == "asleep")
        assert shown(result(host, "say", text="awake")) == "test: awake"


def test_a_server_that_is_old_is_started_anew() -> None:
    with hosting(weather=plain(lifecycle={"max_lifetime_seconds": 1})) as host:
        until(lambda: "reconnected after its longest lifetime" in host.log_text)
        assert shown(result(host, "say", text="young")) == "test: young"


def test_a_reload_connects_and_ends_only_what_changed() -> None:
    with hosting(weather=plain(), other=plain(env={"TEST_NAME": "other"})) as host:
        before = shown(result(host, "pid"))
        file = host.home / "config.yaml"
        text = file.read_text()
        file.write_text(text.replace("other", "third"))
        host.host.plugins.reload()
        host.host.service(McpServers).wait_connected(60)
        assert states(host) == {"third": "connected", "weather": "connected"}
        assert "mcp__other__say" not in host.host.tools.names()
        assert "third: yes" in host.dispatch_tool("mcp__third__say", {"text": "yes"})
        assert shown(result(host, "pid")) == before
        said = host.run_command("/reload-mcp") or ""
        assert "weather: connected" in said
        assert shown(result(host, "pid")) != before


def test_two_servers_with_one_name_for_a_tool_keep_theirs_apart_and_filters_hold() -> None:
    filtered = plain(env={"TEST_NAME": "other"}, tools={"include": ["say", "crash"], "exclude": ["crash"]})
    with hosting(weather=plain(supports_parallel_tool_calls=True), other=filtered) as host:
        assert shown(result(host, "say", text="x")) == "test: x"
        assert "other: yes" in host.dispatch_tool("mcp__other__say", {"text": "yes"})
        names = set(host.host.toolsets.resolve("other"))
        assert names == {"mcp__other__say"}
        parallel = {name: bool(entry.parallel_safe) for name, entry in host.host.tools.items()}
        assert parallel["mcp__weather__say"] and not parallel["mcp__other__say"]


def test_a_server_that_speaks_the_newest_protocol_alone_is_understood() -> None:
    if not hasattr(mcp, "Client"):
        pytest.skip("version 1 of the library does not speak it")
    with hosting(weather=plain(env={"TEST_NEWEST": "1"})) as host:
        until(lambda: states(host)["weather"] == "connected")
        assert shown(result(host, "say", text="rain")) == "test: rain"


def test_without_a_server_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom hermes_agent.testing import plugin_host\n"
        "with plugin_host(lambda ctx: None, config={'mcp_servers': {'x': {'command': 'x', 'enabled': False}}},"
        " model=['done']) as host:\n    host.ask('go')\n    print('mcp' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.stdout.strip() == "False", done.stderr


def test_a_server_that_is_named_for_a_platform_keeps_others_away_before_it_is_there() -> None:
    config = mcp_config(weather=plain(), late={"command": "/nowhere/at/all"})
    with plugin_host(quiet, config={**config, "platform_toolsets": {"cli": ["file", "late"]}}) as host:
        host.host.service(McpServers).wait_connected(60)
        host.model.say("done")
        host.ask("go")
        assert "read_file" in host.model.tools
        assert not any(name.startswith("mcp__weather") for name in host.model.tools)
        assert "there is no toolset `late`" not in host.log_text
