"""Extensions without Python, as the newest guide prints them: a shell hook, and the commands of a tap."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from compat.guides import flat, guide
from hermes_agent.app.main import main
from hermes_agent.testing import call, plugin_host

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
