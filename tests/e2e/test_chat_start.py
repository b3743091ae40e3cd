"""The start of a chat: the prompt comes first, and what is sent before the agent is loaded is not lost."""

from __future__ import annotations

from pathlib import Path

import pexpect

from prompted import ESCAPES, PromptedCommand
from terminal_screen import PROMPT, TerminalScreen
from worlds import PROMPTS, answer, make_home, run, script

SLOW_PLUGIN = """\
import asyncio, pathlib, sys, threading, time

async def wait(path):
    while not path.exists():
        await asyncio.sleep(0.02)

def register(ctx):
    assert threading.current_thread() is threading.main_thread()
    print("slow: waits")
    asyncio.run(wait(pathlib.Path.home() / "go"))
    loop = asyncio.new_event_loop()
    loop.close()
    print("slow: goes on", file=sys.stderr)
"""


def slow_home(tmp_path: Path, model: object) -> Path:
    """Return a home with a plugin that loads until the file `go` exists."""
    home = make_home(tmp_path, model)  # type: ignore[arg-type]
    folder = home / "plugins" / "slow"
    folder.mkdir()
    (folder / "plugin.yaml").write_text("name: slow\nversion: 1.0.0\ndescription: loads slowly\n")
    (folder / "__init__.py").write_text(SLOW_PLUGIN)
    config = home / "config.yaml"
    config.write_text(config.read_text().replace("[calculator]", "[slow, calculator]"))
    return home


def test_the_prompt_is_shown_before_plugins_are_loaded_and_takes_messages(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = TerminalScreen(slow_home(tmp_path, model))
        terminal.wait(PROMPT)
        terminal.wait("loading the agent")
        assert not terminal.shows("hermes-agent 0.20")
        terminal.type(f"{PROMPTS[0].question}\r")
        (tmp_path / "go").touch()
        terminal.wait(answer(PROMPTS[0]))
        text = terminal.text()
        assert text.index("slow: waits") < text.index("slow: goes on") < text.index("hermes-agent 0.20")
        assert text.count(f"{PROMPT} {PROMPTS[0].question}") == 1
        assert "loading the agent" not in text
        assert terminal.leave() == 0


def test_a_secret_in_an_early_message_is_neither_shown_again_nor_in_the_history(tmp_path: Path, scripted) -> None:
    secret = "k9Xw2LmQ8vRt4ZbN7cYd"
    with scripted([{"match": {}, "response": {"content": "All is well."}}]) as model:
        home = slow_home(tmp_path, model)
        with (home / ".env").open("a") as env:
            env.write(f"SOME_API_KEY={secret}\n")
        terminal = TerminalScreen(home)
        terminal.wait("loading the agent")
        terminal.type(f"my key is {secret} today\r")
        terminal.wait("a message for the agent that is loaded")
        assert not terminal.shows(secret)
        assert secret not in (home / "history").read_text()
        (tmp_path / "go").touch()
        terminal.wait("All is well.")
        assert terminal.shows("my key is [redacted] today") and not terminal.shows(secret)
        assert "+my key is [redacted] today" in (home / "history").read_text()
        assert terminal.leave() == 0


def test_a_user_who_leaves_before_the_agent_is_loaded_starts_no_chat(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = TerminalScreen(slow_home(tmp_path, model))
        terminal.wait("loading the agent")
        terminal.type("\x04")
        (tmp_path / "go").touch()
        assert terminal.end() == 0
        assert model.bodies() == []


def test_a_command_that_takes_long_says_what_it_does_only_at_a_terminal(tmp_path: Path) -> None:
    home = slow_home(tmp_path, None)
    command = PromptedCommand(home, "tools", "list", "--json")
    command.expect("loading the agent and its plugins … 1 s")
    (tmp_path / "go").touch()
    command.process.expect(pexpect.EOF)
    shown = command.process.before
    assert '"terminal"' in shown and not ESCAPES.sub("", shown.rpartition("]")[2]).strip()
    done = run(home, "tools", "list", "--json")
    assert "loading" not in done.stderr + done.stdout


def test_an_error_while_the_agent_is_loaded_restores_the_terminal(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        home = slow_home(tmp_path, model)
        (tmp_path / "go").touch()
        shell = 'hermes --resume nothing; echo "status $?"; stty -a; echo ended'
        terminal = TerminalScreen(home, command=["/bin/sh", "-c", shell])
        terminal.wait("ended")
        text = terminal.text()
        assert "hermes: " in text and "'nothing'" in text and "slow: goes on" in text
        assert "status 1" in text and " icanon" in text and " echo " in text
        assert PROMPT not in text
        terminal.end()
