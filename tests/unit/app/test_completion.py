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
    "-p work config s": ["set", "show"],
    "sessions export --format ": ["jsonl", "markdown"],
    "config check READ": ["README.md"],
}
"""What a user typed, and what Tab offers in a folder with one file."""
BASH = """
COMP_WORDS=({words}); COMP_CWORD={last}; COMPREPLY=()
_shtab_hermes hermes "${{COMP_WORDS[{last}]}}" "${{COMP_WORDS[{last} - 1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("")
    return tmp_path


def complete(shell: str, text: str, folder: Path) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-c", text], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return sorted({line.split("\t")[0] for line in done.stdout.splitlines() if line})


@pytest.mark.parametrize("typed", CASES)
def test_bash_completes_commands_options_choices_and_files(typed: str, folder: Path) -> None:
    words = ["hermes", *typed.split(" ")]
    probe = BASH.format(words=" ".join(f"'{word}'" for word in words), last=len(words) - 1)
    assert complete("bash", completion_script("bash", build_parser()) + probe, folder) == CASES[typed]


@pytest.mark.parametrize("typed", [typed for typed in CASES if "--" not in typed or "=" in typed])
def test_fish_completes_commands_choices_and_files(typed: str, folder: Path) -> None:
    (folder / "hermes.fish").write_text(completion_script("fish", build_parser()))
    probe = f"source hermes.fish; complete -C 'hermes {typed}'"
    assert complete("fish", probe, folder) == CASES[typed]


def test_zsh_registers_its_completion_from_the_line_that_the_help_names(folder: Path) -> None:
    (folder / "completion.zsh").write_text(completion_script("zsh", build_parser()))
    probe = 'autoload -Uz compinit; compinit -u -d dump; eval "$(<completion.zsh)"; print $_comps[hermes]'
    assert complete("zsh", probe, folder) == ["_shtab_hermes"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_shell_gets_every_command_and_what_it_does(shell: str) -> None:
    text = completion_script(shell, build_parser())
    for command in ("config", "gateway", "logs", "model", "plugins", "sessions", "skills"):
        assert command in text
    assert "show, change and check the config" in text


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
