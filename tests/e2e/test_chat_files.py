"""Files that are dropped on a chat, and answers that are copied out of it."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path

import pytest

from chat_steps import heard, opened, user_texts
from terminal_screen import PROMPT
from test_chat_terminals import Tmux
from worlds import make_home

PIXEL = bytes.fromhex("89504e470d0a1a0a")
ANSWER = """\
Two ways:

```sh
echo one
```

or in Python:

```python
for n in range(2):
    print(n)
```
"""
COPIED = re.compile(r"\x1b\]52;c?;([A-Za-z0-9+/=]*)(?:\x07|\x1b\\)")


def copied(raw: str) -> list[str]:
    """Return the texts that a program gave to the clipboard of its terminal."""
    return [base64.b64decode(data).decode() for data in COPIED.findall(raw)]


def test_dropped_files_become_mentions_in_every_form_that_terminals_paste(tmp_path: Path, scripted) -> None:
    work, other = tmp_path / "work", tmp_path / "my pictures"
    for folder in (work, other):
        folder.mkdir()
    (work / "plan.txt").write_text("x")
    (other / "a cat.png").write_bytes(PIXEL)
    shown = other / "a cat.png"
    url = "file://" + str(shown).replace(" ", "%20")
    with scripted([heard("look at", "A cat."), heard("what of", "Gone.")]) as model:
        terminal = opened(make_home(tmp_path, model), directory=work, columns=200)
        for pasted, inserted in (
            (f"'{shown}'", f'@"{shown}"'),  # GNOME, Konsole
            (str(shown).replace(" ", "\\ ") + " ", f'@"{shown}"'),  # macOS
            (f'"{shown}"', f'@"{shown}"'),  # Windows
            (url + "\r\n", f'@"{shown}"'),  # file managers
            (url.replace("file://", "file://localhost"), f'@"{shown}"'),
            (f"{work}/plan.txt '{shown}'", f'@plan.txt @"{shown}"'),
        ):
            terminal.type("look at")
            terminal.paste(pasted)
            wanted = f"look at {inserted}"
            terminal.until(lambda wanted=wanted: terminal.input() == wanted, wanted)
            if "plan" not in pasted:
                terminal.type("\x03")
                terminal.until(lambda: terminal.input() == "", "an empty input")
        terminal.type("\r")
        terminal.wait("A cat.")
        (content,) = user_texts(model)
        assert content[0]["text"] == f'look at @plan.txt @"{shown}" '
        assert content[1]["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(PIXEL).decode()
        terminal.type("what of ")
        terminal.paste(f"{work}/gone.txt")  # no file: it stays a text
        terminal.wait(f"what of {work}/gone.txt")
        terminal.type("\r")
        terminal.wait("Gone.")
        assert terminal.leave() == 0


def test_the_answer_or_a_code_block_is_copied_by_the_terminal(tmp_path: Path, scripted) -> None:
    with scripted([heard("how", ANSWER), heard("long", "word " * 20_000 + "That is the end.")]) as model:
        terminal = opened(make_home(tmp_path, model), SSH_CONNECTION="10.0.0.1 1 10.0.0.2 22")
        for line, told in (
            ("/copy", "There is no answer to copy yet."),
            ("how?", "print(n)"),
            ("/copy", "Copied the answer, 12 lines, by the terminal, if it knows OSC 52."),
            ("/copy code 1", "Copied the code block, 1 line,"),
            ("/copy code 3", "there is no code block 3"),
            ("/copy all", "/copy all: there is no such text"),
        ):
            terminal.say(line)
            terminal.wait(told)
            terminal.idle()
        terminal.say("/copy code")
        terminal.wait("Copy a code block")
        terminal.wait("2. for n in range(2):")
        terminal.type("2")
        terminal.wait("Copied the code block, 2 lines,")
        assert copied(terminal.raw) == [ANSWER, "echo one\n", "for n in range(2):\n    print(n)\n"]
        terminal.say("a long text")
        terminal.wait("That is the end.")
        terminal.idle()
        terminal.say("/copy")
        terminal.wait("the text cannot be copied here")
        assert len(copied(terminal.raw)) == 3
        assert terminal.leave() == 0


def test_a_program_of_the_desktop_takes_what_is_copied(tmp_path: Path, scripted) -> None:
    program = tmp_path / "wl-copy"
    program.write_text(f'#!/bin/sh\ncat > "{tmp_path}/clipboard"\n')
    program.chmod(0o755)
    with scripted([heard("how", ANSWER)]) as model:
        home = make_home(tmp_path, model)
        terminal = opened(home, WAYLAND_DISPLAY="w", PATH=f"{tmp_path}:/usr/bin:/bin")
        terminal.say("how?")
        terminal.wait("print(n)")
        terminal.idle()
        terminal.say("/copy")
        terminal.wait("Copied the answer, 12 lines, by wl-copy.")
        assert (tmp_path / "clipboard").read_text() == ANSWER
        assert copied(terminal.raw) == []
        assert terminal.leave() == 0


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_what_is_copied_in_tmux_reaches_its_buffer_and_the_terminal_outside(tmp_path: Path, scripted) -> None:
    with scripted([heard("how", ANSWER)]) as model:
        home = make_home(tmp_path, model)
        tmux = Tmux(tmp_path, home, 80)
        try:
            terminal = opened(home, command=["tmux", "-S", str(tmp_path / "tmux"), "attach"])
            tmux.run("set", "-g", "allow-passthrough", "on")
            terminal.wait(PROMPT)
            terminal.say("how?")
            terminal.wait("print(n)")
            terminal.say("/copy")
            terminal.wait("Copied the answer, 12 lines, by tmux and the terminal.")
            terminal.until(lambda: set(copied(terminal.raw)) == {ANSWER}, "the clipboard of the terminal")
            assert tmux.run("show-buffer") == ANSWER
        finally:
            tmux.run("kill-server")
