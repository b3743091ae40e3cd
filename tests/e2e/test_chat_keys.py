"""Keys, pastes, menus, interruptions and the size of the terminal in a chat."""

from __future__ import annotations

import json
import os
import signal
import termios
from pathlib import Path
from typing import Any

import pytest

from terminal_screen import PROMPT, TerminalScreen, check_screen
from worlds import PROMPTS, answer, make_home, run, script

SLOW: dict[str, Any] = {
    "match": {"userMessage": "a long story"},
    "response": {"content": "word " * 400},
    "latency": 100,
    "chunkSize": 5,
}
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f0005000201a5f645400000000049454e44ae426082"
)


def heard(text: str, content: str) -> dict[str, Any]:
    """Return a fixture: the answer to messages that contain `text`."""
    return {"match": {"userMessage": text}, "response": {"content": content}}


def opened(tmp_path: Path, model: Any, *, directory: Path | None = None, **options: Any) -> TerminalScreen:
    """Return a chat that shows its prompt."""
    home = tmp_path / "home"
    if not home.exists():
        make_home(tmp_path, model)
    terminal = TerminalScreen(home, directory=directory, **options)
    terminal.wait("Ctrl-D leaves")
    terminal.wait(PROMPT)
    return terminal


def user_texts(model: Any) -> list[Any]:
    return [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]


def test_lines_pastes_and_an_editor_make_one_message(tmp_path: Path, scripted) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf ' and edited' >> \"$1\"\n")
    editor.chmod(0o755)
    with scripted([heard("first", "One."), heard("pasted", "Two."), heard("edited", "Three.")]) as model:
        terminal = opened(tmp_path, model, EDITOR=str(editor))
        terminal.type("first\\\rsecond\x1b\rthird\nfourth")
        terminal.type("\x1b[27;2;13~fifth")  # Shift-Enter, as xterm reports it
        terminal.wait("fifth")
        terminal.type("\r")
        terminal.wait("One.")
        assert user_texts(model) == ["first\nsecond\nthird\nfourth\nfifth"]
        long = "\n".join(f"r{number}" for number in range(5_000))  # the server keeps 64 kB of a request
        terminal.type("pasted: ")
        terminal.paste(long)
        terminal.wait("[pasted 5,000 lines #")
        terminal.type("\r")
        terminal.wait("Two.")
        assert user_texts(model)[-1] == f"pasted: {long}"
        assert not terminal.shows("r2500")
        terminal.type("typed")
        terminal.type("\x18\x05")  # Ctrl-X Ctrl-E
        terminal.wait("typed and edited")
        terminal.type("\r")
        terminal.wait("Three.")
        assert terminal.leave() == 0


def test_history_is_searched_across_sessions_and_vi_keys_work(tmp_path: Path, scripted) -> None:
    with scripted([heard("needle", "Found."), heard("b2", "Vi.")]) as model:
        terminal = opened(tmp_path, model)
        terminal.say("a needle in the hay")
        terminal.wait("Found.")
        terminal.idle()
        assert terminal.leave() == 0
        terminal = opened(tmp_path, model)
        terminal.type("\x12needle")  # Ctrl-R
        terminal.wait("a needle in the hay")
        terminal.type("\r\r")
        terminal.wait("Found.")
        terminal.say("/keys vi")
        terminal.wait("Keys of vi.")
        terminal.idle()
        terminal.type("b1")
        terminal.wait(f"{PROMPT} b1")
        terminal.type("\x1b")
        terminal.settle()
        terminal.type("r2")
        terminal.wait(f"{PROMPT} b2")
        terminal.type("\r")
        terminal.wait("Vi.")
        assert terminal.leave() == 0
    assert json.loads(run(tmp_path / "home", "config", "get", "display.editing_mode", "--json").stdout) == "vi"


def test_messages_during_a_turn_wait_in_a_visible_queue(tmp_path: Path, scripted) -> None:
    with scripted([SLOW, heard("after", "Second answer."), heard("edited", "Third answer.")]) as model:
        terminal = opened(tmp_path, model)
        terminal.say("a long story")
        terminal.wait("word word")
        terminal.say("after that")
        terminal.wait("queued: after that")
        terminal.say("and more")
        terminal.wait("queued: and more")
        terminal.type("\x1b[A")  # Up takes the last one back
        terminal.gone("queued: and more")
        terminal.wait(f"{PROMPT} and more")
        terminal.type("\x15edited")
        terminal.say("/usage")  # a command runs at once: here it is what is typed behind the text
        terminal.type("\x03")
        terminal.wait("(interrupted)")
        terminal.wait("Second answer.")
        terminal.wait("Third answer.")
        assert terminal.leave() == 0


def test_pickers_complete_by_parts_of_names(tmp_path: Path, scripted) -> None:
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "main.py").write_text("x")
    (work / "cat.png").write_bytes(PIXEL)
    with scripted([*script(PROMPTS[0]), heard("look", "A cat."), heard("main", "A file.")]) as model:
        terminal = opened(tmp_path, model, directory=work)
        terminal.say(PROMPTS[0].question)
        terminal.wait(answer(PROMPTS[0]))
        terminal.say("/title the first plan")
        terminal.wait("Title: the first plan")
        terminal.say("/branch another plan")
        terminal.wait("A copy of")
        terminal.idle()
        terminal.say("/sessions")
        terminal.wait("another plan")
        terminal.type("first")
        terminal.gone("another plan   ")
        terminal.type("\r")
        terminal.wait(": the first plan")
        terminal.idle()
        terminal.type("look at @cat")
        terminal.wait("  cat.png")
        terminal.type("\t")
        terminal.wait("@cat.png")
        terminal.type(" \r")
        terminal.wait("A cat.")
        parts = user_texts(model)[-1]
        assert parts[0]["text"].startswith("look at @cat.png")
        assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,")
        terminal.type("@mai\t")
        terminal.wait("@src/main.py")
        terminal.type(" \r")
        terminal.wait("A file.")
        assert terminal.leave() == 0


def test_own_commands_notes_and_the_commands_of_a_session(tmp_path: Path, scripted) -> None:
    with scripted([heard("what did", "It said hello."), heard("again", "Yes.")]) as model:
        terminal = opened(tmp_path, model, columns=200)
        terminal.say("!echo hello-$((40 + 2)); exit 3")
        terminal.wait("hello-42")
        terminal.wait("(exit status 3)")
        terminal.say("what did it say?")
        terminal.wait("It said hello.")
        sent = user_texts(model)[-1]
        assert "The user ran this command (exit status 3): echo hello-" in sent and "hello-42" in sent
        terminal.say("#the vault is disk two")
        terminal.wait("Noted: the vault is disk two")
        assert "the vault is disk two" in (tmp_path / "home" / "memories" / "MEMORY.md").read_text()
        terminal.say("/context")
        terminal.wait("system prompt")
        terminal.wait("tokens (")
        terminal.say("/cost")
        terminal.wait("This session:")
        terminal.say("/save talk.md")
        terminal.wait("Written:")
        text = (tmp_path / "talk.md").read_text()
        assert "It said hello." in text
        terminal.say("/export html talk.html")
        terminal.wait(f"Written: {tmp_path}/talk.html")
        assert "<p>It said hello.</p>" in (tmp_path / "talk.html").read_text()
        terminal.say("/export json talk.json")
        terminal.wait(f"Written: {tmp_path}/talk.json")
        assert "It said hello." in [
            each["content"] for each in json.loads((tmp_path / "talk.json").read_text())["messages"]
        ]
        terminal.say("/save talk.md")
        terminal.wait("exists and is not replaced")
        terminal.say("/edit")
        terminal.wait("The last question and its answer were removed")
        terminal.until(lambda: terminal.input() == "what did it say?", "the question as it was typed")
        terminal.type("\x15again\r")
        terminal.wait("Yes.")
        assert len(user_texts(model)) == 1
        terminal.say("/theme high-contrast")
        terminal.wait("theme: high-contrast")
        terminal.say("/keys")
        terminal.wait("Ctrl-X Ctrl-E")
        assert terminal.leave() == 0


def test_a_resize_leaves_no_traces(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = opened(tmp_path, model, columns=80, rows=24)
        terminal.say(PROMPTS[0].question)
        terminal.wait(answer(PROMPTS[0]))
        terminal.idle()
        terminal.wait("approvals")
        for columns, rows in ((50, 20), (120, 40), (40, 15), (80, 24)):
            terminal.resize(columns, rows)
            terminal.settle()
            shown = "\n".join(terminal.visible())
            assert shown.count(PROMPT) == 2
            assert shown.count(answer(PROMPTS[0])) == 1
            assert shown.count("scripted-model ·") == 1
        assert terminal.leave() == 0


@pytest.mark.parametrize("kind", ["dumb", "reader"])
def test_a_plain_screen_only_appends(tmp_path: Path, scripted, kind: str) -> None:
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": "echo done-$((1 + 1))"})}
    fixtures = [
        {"match": {"userMessage": "run it", "hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"userMessage": "run it", "hasToolResult": True}, "response": {"content": "All **done**."}},
    ]
    with scripted(fixtures) as model:
        home = make_home(tmp_path, model)
        if kind == "reader":
            run(home, "config", "set", "display.screen_reader", "true")
        terminal = TerminalScreen(home, columns=200, TERM="dumb" if kind == "dumb" else "xterm")
        terminal.wait(PROMPT)
        terminal.type("run it\r")
        terminal.wait("[o] Allow once")
        terminal.type("o\r")
        terminal.wait("All done.")
        terminal.wait("● Ran echo")
        terminal.type("\x04")
        assert terminal.end() == 0
        assert "\x1b[" not in terminal.raw if kind == "dumb" else "\x1b[A" not in terminal.raw
    check_screen(f"plain-{kind}", terminal.normal(WORK=str(tmp_path)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_the_terminal_is_restored_after_a_signal(tmp_path: Path, scripted, number: signal.Signals) -> None:
    with scripted([SLOW]) as model:
        make_home(tmp_path, model)
        shell = 'hermes; echo "status $?"; stty -a; echo ended'
        terminal = TerminalScreen(tmp_path / "home", command=["/bin/sh", "-c", shell])
        terminal.wait("Ctrl-D leaves")
        terminal.wait(PROMPT)
        terminal.say("a long story")
        terminal.wait("word word")
        (child,) = Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children").read_text().split()
        os.kill(int(child), number)
        if number == signal.SIGINT:
            terminal.wait("(interrupted)")
            os.kill(int(child), number)
            terminal.wait("Press Ctrl-C again")
            os.kill(int(child), number)
        terminal.wait(f"status {0 if number == signal.SIGINT else 128 + number}")
        terminal.wait("ended")
        assert terminal.shows(" icanon") and terminal.shows(" echo ")
        assert terminal.raw.rstrip().count("\x1b[?2004h") <= terminal.raw.count("\x1b[?2004l") + 1
        terminal.end()


def test_a_letter_of_a_message_answers_no_question(tmp_path: Path, scripted) -> None:
    witness = tmp_path / "witness"
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": f"touch {witness}"})}
    fixtures = [
        {"match": {"userMessage": "do it", "hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"userMessage": "do it", "hasToolResult": True}, "response": {"content": "Not done."}},
    ]
    with scripted(fixtures) as model:
        terminal = opened(tmp_path, model)
        terminal.say("do it")
        terminal.wait("[o] Allow once")
        terminal.type("ok, so")
        terminal.wait("Tab answers the question")
        terminal.wait(f"{PROMPT} ok, so")
        terminal.type("\t")
        terminal.gone("Tab answers the question")
        terminal.type("d")
        terminal.wait("Not done.")
        assert not witness.exists()
        terminal.type("\x03")
        assert terminal.leave() == 0


def test_the_mode_of_the_terminal_is_raw_only_in_the_chat(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = opened(tmp_path, model)
        flags = termios.tcgetattr(terminal.process.child_fd)[3]
        assert not flags & termios.ICANON
        assert terminal.leave() == 0


def test_the_last_lines_of_a_long_command_are_shown_while_it_runs(tmp_path: Path, scripted) -> None:
    command = "for i in 1 2 3 4 5 6; do echo line-$i-$((i * 7)); done; while [ ! -e go ]; do sleep 0.05; done; echo end"
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": command})}
    fixtures = [
        {"match": {"userMessage": "run", "hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"userMessage": "run", "hasToolResult": True}, "response": {"content": "It ended."}},
    ]
    with scripted(fixtures) as model:
        terminal = opened(tmp_path, model)
        terminal.say("run it")
        terminal.wait("[o] Allow once")
        terminal.type("o")
        terminal.wait("  │ line-6-42")
        assert terminal.shows("  │ line-3-21") and not terminal.shows("  │ line-2-14")
        terminal.say("typed while it runs")
        terminal.wait("queued: typed while it runs")
        terminal.type("\x1b[A\x15")
        (tmp_path / "go").touch()
        terminal.wait("It ended.")
        terminal.idle()
        assert not terminal.shows("line-6-42\n")
        assert terminal.leave() == 0
