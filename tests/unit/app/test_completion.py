from __future__ import annotations

import shutil
import subprocess

import pytest

from hermes_agent.app.cli.home import completion_script
from hermes_agent.app.command_line import build_parser

CASES = {
    "con": ["config"],
    "config s": ["set", "show"],
    "config set --": ["--help"],
    "completion b": ["bash"],
    "--ver": ["--version"],
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize("typed", CASES)
def test_bash_completes_commands_options_and_choices(typed: str) -> None:
    words = ["hermes", *typed.split(" ")]
    quoted = " ".join(f"'{w}'" for w in words)
    shell = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _hermes; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "-c", completion_script("bash", build_parser()) + shell],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert sorted(done.stdout.split()) == CASES[typed]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_shell_gets_every_command(shell: str) -> None:
    text = completion_script(shell, build_parser())
    for command in ("config", "gateway", "logs", "model", "plugins", "sessions", "skills"):
        assert command in text
