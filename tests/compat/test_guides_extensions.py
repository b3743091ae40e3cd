"""Extensions without Python, as the newest guide prints them.

| example of the guide | test |
| --- | --- |
| `mcp_servers`, `filesystem` | `e2e/test_published_mcp.py`, which `make compat` runs with the published server |
| `mcp_servers`, `linear` | here, with a server of these tests behind a sign-in |
| `HOOK.yaml`, `handler.py` | `test_acceptance_gateway.py` |
| `hooks` | here |
| `hermes skills tap`, `search`, `install` | here |
| `tts.providers` | here, with a program of these tests under its name |
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from compat.guides import flat, guide
from compat.test_guides_specialised import flat_yaml
from hermes_agent.app.main import main
from hermes_agent.mcp.servers import McpServers
from hermes_agent.testing import call, plugin_host
from peers.running import free_port, running

GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@tap.example")


@pytest.fixture
def page() -> str:
    return guide("build-a-plugin.newest.ko.txt")


def test_a_shell_hook_runs_its_program_for_the_tools_that_it_names(page: str, tmp_path: Path) -> None:
    text = flat(page, "hooks:", "tools: [terminal, patch, write_file]", "00112")
    hooks = yaml.safe_load(text.replace("\n    command", "\n  command").replace("\n    when", "\n  when"))["hooks"]
    assert hooks == [
        {
            "event": "post_tool_call",
            "command": "notify-send 'Tool ran: {tool_name}'",
            "when": {"tools": ["terminal", "patch", "write_file"]},
        }
    ]
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> {tmp_path}/shown\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    steps = [call("write_file", path="a.txt", content="x"), call("read_file", path="a.txt"), "done"]
    settings = {"hooks": hooks, "hooks_auto_accept": True, "terminal": {"cwd": str(tmp_path)}}
    with plugin_host(config=settings, env={"PATH": path}, model=steps, approvals=["once"]) as host:
        host.ask("write it")
        host.host.hooks.wait_idle(30)
    assert (tmp_path / "shown").read_text() == "Tool ran: write_file\n"


def test_an_mcp_server_at_an_address_is_signed_in_and_its_tools_run(page: str) -> None:
    pytest.importorskip("mcp")
    printed = flat_yaml(page, "mcp_servers:", "012221223")["mcp_servers"]["linear"]
    assert printed == {"url": "https://mcp.linear.app/sse", "auth": {"type": "oauth"}}
    port = free_port()
    command = [sys.executable, str(Path(__file__).parents[1] / "peers" / "mcp_server.py"), "sse", str(port)]
    own = {**printed, "url": printed["url"].replace("https://mcp.linear.app", f"http://127.0.0.1:{port}")}
    config = {"mcp_servers": {"linear": own}}
    peer = running(
        command, host="127.0.0.1", port=port, path="", environ={"TEST_GUARDED": str(port), "TEST_PATH": "sse"}
    )
    with peer, plugin_host(lambda ctx: None, config=config) as host:
        servers = host.host.service(McpServers)
        servers.wait_connected(60)
        assert "`hermes mcp login linear`" in servers.status()[0].error
        words = [sys.executable, "-m", "hermes_agent", "mcp", "login", "linear", "--no-open"]
        environ = {**os.environ, "HERMES_HOME": str(host.home)}
        with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as login:
            assert login.stdout is not None
            address = next(line for line in login.stdout if line.startswith("http"))
            with urllib.request.urlopen(address.strip(), timeout=60) as answer:  # the browser, which is sent back
                assert "Signed in" in answer.read().decode()
            assert "Signed in at linear" in login.stdout.read()
        assert "linear: connected" in (host.run_command("/reload-mcp") or "")
        assert "test: in" in host.dispatch_tool("mcp__linear__echo", {"text": "in"})


def test_a_command_speaks(page: str, tmp_path: Path) -> None:
    config = flat_yaml(page, "tts:", "01123333")
    program = tmp_path / "bin" / "voxcpm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1 $2 $3 $5" > {tmp_path}/asked\ncat "$4" > "$6"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    with plugin_host(config={**config, "terminal": {"cwd": str(tmp_path)}}, env={"PATH": path}) as host:
        said = json.loads(host.dispatch_tool("text_to_speech", {"text": "tea is ready", "output_path": "tea.mp3"}))
    assert said.get("success", True) and "error" not in said, said
    assert (tmp_path / "tea.mp3").read_text() == "tea is ready"
    option, voice, *rest = (tmp_path / "asked").read_text().split()
    assert (
        (option, rest) == ("--ref", ["--text-file", "--out"]) and voice.startswith("/") and voice.endswith("/voice.wav")
    )


def test_the_commands_of_a_tap_add_find_and_install_a_skill(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in page.splitlines() if line.startswith("hermes skills ") and "<" not in line]
    assert [line.split()[2] for line in lines] == ["tap", "search", "install"]
    repository = tmp_path / "server" / "myorg" / "skills-repo.git"
    (repository / "skills" / "my-workflow").mkdir(parents=True)
    text = "---\nname: my-workflow\ndescription: How we work\n---\nWork.\n"
    (repository / "skills" / "my-workflow" / "SKILL.md").write_text(text)
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run([*GIT, *command], cwd=repository, check=True, capture_output=True)
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text(json.dumps({"skills": {"tap_base": (tmp_path / "server").as_uri()}}))
    monkeypatch.setattr(os, "environ", {**os.environ, "HERMES_HOME": str(home)})
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "myorg/skills-repo/my-workflow" in said and "How we work" in said
    assert (home / "skills" / "my-workflow" / "SKILL.md").read_text() == text
