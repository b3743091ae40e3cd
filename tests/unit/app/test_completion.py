from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hermes_agent.app.cli.completion import completion_script, install, man_pages
from hermes_agent.app.command_line import build_parser
from hermes_agent.core.errors import UserError

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


def test_man_pages_have_every_option_and_are_valid_roff() -> None:
    pages = man_pages(build_parser())
    assert {"hermes", "hermes-chat", "hermes-config"} <= set(pages)
    assert "\\fB\\-\\-max\\-turns\\fR \\fIN\\fR" in pages["hermes-chat"]
    assert ".SS hermes config set" in pages["hermes-config"]
    for page in pages.values():
        assert page.startswith(".TH HERMES")
        assert not re.search(r"(?m)^'", page)


def test_completion_is_installed_where_the_shell_finds_it(tmp_path: Path) -> None:
    environ = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    for shell, file in (
        ("bash", "data/bash-completion/completions/hermes"),
        ("zsh", "data/hermes/completion.zsh"),
        ("fish", "config/fish/completions/hermes.fish"),
    ):
        told = "\n".join(install(shell, build_parser(), environ))
        assert str(tmp_path / file) in told
        assert "hermes" in (tmp_path / file).read_text()
    assert (tmp_path / "data/man/man1/hermes-chat.1").is_file()
    with pytest.raises(UserError, match="no completion for tcsh"):
        install("tcsh", build_parser(), environ)
