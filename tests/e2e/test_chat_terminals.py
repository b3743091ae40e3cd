"""Every key of the help, every menu and theme, terminals with few colours, and tmux."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.console.slash_commands import KEYS
from hermes_agent.console.styled import THEMES
from peers.sshd import SshServer
from terminal_screen import PROMPT, TerminalScreen
from worlds import HERMES, PROMPTS, answer, environment, make_home, run, script

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])(?:;\d+)*m")
MANY_COLOURS = re.compile(r"\x1b\[(?:\d+;)*[34]8[;:]")


def heard(text: str, content: str) -> dict[str, Any]:
    return {"match": {"userMessage": text}, "response": {"content": content}}


def opened(home: Path, **options: Any) -> TerminalScreen:
    terminal = TerminalScreen(home, **options)
    terminal.wait("Ctrl-D leaves")
    terminal.idle()
    return terminal


class KeyPresses:
    """A user who presses each key of the help, in a shell with job control."""

    def __init__(self, terminal: TerminalScreen) -> None:
        self._terminal = terminal

    def enter(self) -> None:
        self._terminal.type("first\r")
        self._terminal.wait("One.")
        self._terminal.idle()

    def history(self) -> None:
        self._shows("draft\x1b[A", "first")
        self._shows("\x1b[B", "draft")
        self.clear()

    def search(self) -> None:
        self._shows("\x12irs", "first\nI-search backward: irs")
        self._terminal.type("\r")
        self.clear()

    def lines(self) -> None:
        self._shows("a\x1b\rb\x1b[27;2;13~c\nd", "a\nb\nc\nd")
        self.clear()

    def complete(self) -> None:
        self._shows("/verb\t", "/verbose")
        self.clear()

    def edit(self) -> None:
        self._shows("typed\x18\x05", "typed and edited")
        self.clear()

    def fold(self) -> None:
        for word in ("shown", "hidden"):
            self._terminal.type("\x0f")
            self._terminal.wait(f"reasoning are {word}")

    def paste(self) -> None:
        self._terminal.type("\x16")
        self._terminal.wait("the clipboard cannot be read")

    def wipe(self) -> None:
        self._terminal.type("\x0c")
        self._terminal.gone("One.")

    def close_menu(self) -> None:
        self._terminal.type("/theme\r")
        self._terminal.wait("Colour themes")
        self._terminal.type("\x1b")
        self._terminal.gone("Colour themes")
        self._terminal.idle()

    def suspend(self) -> None:
        self._terminal.type("\x1a")
        self._terminal.wait("Stopped")
        self._terminal.type("fg\r")
        self._shows("here again", "here again")
        self.clear()

    def clear(self) -> None:
        self._shows("\x03", "")

    def leave(self) -> None:
        self._terminal.type("\x04")
        self._terminal.until(lambda: self._terminal.visible_rows()[-1].startswith("shell>"), "the shell")

    def _shows(self, keys: str, text: str) -> None:
        self._terminal.type(keys)
        self._terminal.until(lambda: self._terminal.input() == text, f"the input {text!r}")


PRESSES = {
    "Enter": KeyPresses.enter,
    "Up, Down": KeyPresses.history,
    "Ctrl-R": KeyPresses.search,
    "Alt-Enter, Shift-Enter, Ctrl-J": KeyPresses.lines,
    "Tab": KeyPresses.complete,
    "Ctrl-X Ctrl-E": KeyPresses.edit,
    "Ctrl-O": KeyPresses.fold,
    "Ctrl-V": KeyPresses.paste,
    "Ctrl-L": KeyPresses.wipe,
    "Esc": KeyPresses.close_menu,
    "Ctrl-Z": KeyPresses.suspend,
    "Ctrl-C": KeyPresses.clear,
    "Ctrl-D": KeyPresses.leave,
}


def test_every_key_of_the_help_has_its_effect(tmp_path: Path, scripted) -> None:
    assert set(PRESSES) == {row.keys for row in KEYS}
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf ' and edited' >> \"$1\"\n")
    editor.chmod(0o755)
    with scripted([heard("first", "One.")]) as model:
        shell = ["bash", "--norc", "--noprofile", "-i"]
        home = make_home(tmp_path, model)
        terminal = TerminalScreen(home, command=shell, columns=100, EDITOR=str(editor), PS1="shell> ")
        terminal.wait("shell>")
        terminal.type("hermes\r")
        terminal.wait("Ctrl-D leaves")
        user = KeyPresses(terminal)
        for press in PRESSES.values():
            press(user)
        terminal.type("exit\r")
        assert terminal.end() == 0


def test_questions_of_the_agent_are_menus(tmp_path: Path, scripted) -> None:
    asked = {"question": "Which disk?", "choices": ["vault", "attic"]}
    calls = [{"id": f"c{n}", "name": "clarify", "arguments": json.dumps(asked)} for n in (1, 2)]
    fixtures = [
        {"match": {"userMessage": "back up", "hasToolResult": False}, "response": {"toolCalls": calls[:1]}},
        {"match": {"toolCallId": "c1"}, "response": {"toolCalls": calls[1:]}},
        {"match": {"toolCallId": "c2"}, "response": {"content": "Thanks."}},
    ]
    with scripted(fixtures) as model:
        terminal = opened(make_home(tmp_path, model), columns=40)
        terminal.say("back up")
        terminal.wait("2. attic")
        terminal.type("2")
        terminal.wait("Which disk? attic")
        terminal.wait("3. Another answer")
        terminal.type("\x1b[A\r")
        terminal.wait("Answer:")
        terminal.type("the blue one\r")
        terminal.wait("Thanks.")
        results = [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "tool"]
        assert "attic" in results[0] and "the blue one" in results[1]
        terminal.idle()
        assert terminal.leave() == 0


def test_the_models_are_picked_with_price_context_and_abilities(tmp_path: Path, scripted) -> None:
    models = ("acme/large", "acme/small")
    fixtures = [{"match": {"model": name}, "response": {"content": f"I am {name}."}} for name in models]
    with scripted(fixtures) as model:
        home = make_home(tmp_path, model)
        config = home / "config.yaml"
        text = config.read_text().replace("/v1", "/api/v1").replace("scripted-model", "acme/large")
        config.write_text(text)
        terminal = opened(home, columns=100)
        terminal.say("/model")
        terminal.wait("Models of custom")
        terminal.wait("acme/small")
        row = next(each for each in terminal.visible() if "acme/small" in each)
        assert "tokens" in row and "$" in row and "tools" in row
        terminal.type("small\r")
        terminal.wait("model: acme/small (custom)")
        terminal.say("/model acme/smal")
        terminal.wait("custom has no model 'acme/smal'")
        terminal.wait("Did you mean acme/small?")
        terminal.say("who are you?")
        terminal.wait("I am acme/small.")
        terminal.idle()
        assert terminal.leave() == 0


@pytest.mark.parametrize("term", ["xterm", "linux"])
def test_themes_use_only_the_colours_that_every_terminal_has(tmp_path: Path, scripted, term: str) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = opened(make_home(tmp_path, model), columns=80, TERM=term, SSH_CONNECTION="10.0.0.1 1 10.0.0.2 22")
        terminal.say(PROMPTS[0].question)
        terminal.wait(answer(PROMPTS[0]))
        coloured = {}
        for name in THEMES:
            begin = len(terminal.raw)
            terminal.say(f"/theme {name}")
            terminal.wait(f"theme: {name}  code")
            terminal.idle()
            terminal.settle()
            coloured[name] = bool(COLOUR.search(terminal.raw[terminal.raw.index(f"theme: {name}", begin) :]))
        assert coloured == {name: name != "none" for name in THEMES}
        assert not MANY_COLOURS.search(terminal.raw)
        assert terminal.leave() == 0


RAISES = """
import asyncio, sys
from hermes_agent.console.line_editor import CompletionSource, input_buffer
from hermes_agent.console.live_screen import LiveScreen
from hermes_agent.console.styled import Theme
from functools import partial
from pathlib import Path

source = CompletionSource(list, lambda name: [], list, Path.cwd)

async def main():
    new_buffer = partial(input_buffer, Path("history"), lambda action: action(), source)
    screen = LiveScreen(Theme(), new_buffer, lambda text: "")
    reading = asyncio.ensure_future(screen.run(None))
    drawn = asyncio.Event()
    screen._app.after_render += lambda _: drawn.set()
    await drawn.wait()
    raise RuntimeError("no luck")

asyncio.run(main())
"""


def test_an_exception_restores_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "raises.py").write_text(RAISES)
    shell = f'{shlex.quote(sys.executable)} raises.py; echo "status $?"; stty -a; echo ended'
    terminal = TerminalScreen(tmp_path / "home", command=["/bin/sh", "-c", shell])
    terminal.wait("ended")
    assert terminal.shows("RuntimeError: no luck") and terminal.shows("status 1")
    assert terminal.shows(" icanon") and terminal.shows(" echo ")
    assert terminal.raw.count("\x1b[?2004h") == terminal.raw.count("\x1b[?2004l") > 0
    terminal.end()


def test_a_chat_keeps_checkpoints_and_debug_shows_the_traceback(tmp_path: Path, scripted) -> None:
    call = {"id": "c1", "name": "write_file", "arguments": json.dumps({"path": "plan.txt", "content": "new\n"})}
    fixtures = [
        {"match": {"userMessage": "write", "hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"userMessage": "write", "hasToolResult": True}, "response": {"content": "Written."}},
    ]
    work = tmp_path / "work"
    work.mkdir()
    (work / "plan.txt").write_text("old\n")
    with scripted(fixtures) as model:
        home = make_home(tmp_path, model)
        terminal = opened(home, directory=work)
        terminal.say("write it")
        terminal.wait("Written.")
        terminal.idle()
        terminal.say("/rollback")
        terminal.wait("plan.txt")
        assert terminal.leave() == 0
    (kept,) = json.loads(run(home, "rollback", "list", "--all", "--json", cwd=work).stdout)
    assert kept
    assert json.loads(run(home, "config", "get", "checkpoints.max_total_size_mb", "--json").stdout) > 0
    plain, debug = (run(home, *more, "--resume", "nothing", "--first", "x") for more in ((), ("--debug",)))
    assert plain.returncode == debug.returncode != 0
    assert "Traceback" not in plain.stderr and "Traceback" in debug.stderr and "'nothing'" in debug.stderr


class Tmux:
    """A tmux server of this test, with one pane."""

    def __init__(self, folder: Path, home: Path, columns: int) -> None:
        self._command = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self._environment = environment(home, TERM="xterm-256color")
        size = ["-x", str(columns), "-y", "30"]
        self.run("new-session", "-d", *size, "-c", str(home.parent), f'{HERMES}; echo "status $?"; exec cat')

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words], env=self._environment, capture_output=True, text=True, timeout=30, check=False
        )
        return done.stdout

    def wait(self, text: str) -> str:
        """Wait until the pane or its scrollback shows a text, and return all of it."""
        until = time.monotonic() + 30
        while text not in (shown := self.run("capture-pane", "-p", "-S", "-")):
            assert time.monotonic() < until, f"waited for {text!r}:\n{shown}"
            self.run("wait-for", "-L", "pause")  # a moment: tmux answers when it has drawn
            self.run("wait-for", "-U", "pause")
        return shown

    def keys(self, *keys: str) -> None:
        self.run("send-keys", *keys)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_conversation_in_tmux(tmp_path: Path, scripted, columns: int) -> None:
    story = {"match": {"userMessage": "story"}, "response": {"content": "word " * 400}, "latency": 100, "chunkSize": 5}
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": "echo done-$((40 + 2))"})}
    fixtures = [
        story,
        {"match": {"userMessage": "run it", "hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"toolCallId": "c1"}, "response": {"content": "It printed **done-42**."}},
    ]
    with scripted(fixtures) as model:
        tmux = Tmux(tmp_path, make_home(tmp_path, model), columns)
        try:
            tmux.wait("Ctrl-D")
            tmux.keys("tell me a story", "Enter")
            tmux.wait("word word")
            tmux.keys("run it", "Enter")
            tmux.wait("queued: run it")
            tmux.keys("C-c")
            tmux.wait("(interrupted)")
            tmux.wait("[o] Allow once")
            tmux.keys("o")
            tmux.wait("It printed done-42.")
            tmux.run("resize-window", "-x", str(columns - 10), "-y", "20")
            tmux.keys("/plu", "Tab")
            tmux.wait(f"{PROMPT} /plugins")
            tmux.keys("C-u")
            tmux.run("resize-window", "-x", str(columns), "-y", "30")
            tmux.keys("/keys", "Enter")
            tmux.wait("suspend")
            # tmux draws in the new size before the program hears of it; then the transcript is written again
            shown = tmux.wait("It printed done-42.")
            assert shown.count("It printed done-42.") == 1, shown
            tmux.keys("C-d")
            tmux.wait("status 0")
        finally:
            tmux.run("kill-server")


@pytest.mark.skipif(not SshServer.is_there(), reason="sshd (package openssh-server) is not installed")
def test_a_chat_over_ssh_redraws_after_a_resize_and_ends_with_its_status(short_path: Path, scripted) -> None:
    with SshServer(short_path / "ssh") as server, scripted(script(PROMPTS[0])) as model:
        home = make_home(short_path, model)
        variables = {**environment(home), "TERM": "xterm-256color"}
        remote = shlex.join(["env", *(f"{name}={value}" for name, value in variables.items()), HERMES])
        terminal = TerminalScreen(home, command=[*server.command, remote], PATH=os.environ["PATH"])
        terminal.wait("Ctrl-D")
        terminal.idle()
        terminal.say(PROMPTS[0].question)
        terminal.wait(answer(PROMPTS[0]))
        terminal.idle()
        terminal.resize(50, 20)
        terminal.settle()
        terminal.say("/keys")
        terminal.wait("suspend")
        terminal.idle()
        assert terminal.text().count(answer(PROMPTS[0])) == 1
        assert "\n".join(terminal.visible()).count("scripted-model ·") == 1
        assert terminal.leave() == 0
