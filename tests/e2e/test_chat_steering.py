"""Messages, reasoning, images and work beside a turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from terminal_screen import PROMPT, TerminalScreen
from worlds import make_home, run

WAIT = "while [ ! -e go ]; do sleep 0.05; done; echo went"
PIXEL = bytes.fromhex("89504e470d0a1a0a")
WL_PASTE = '#!/bin/sh\ncase "$1" in --list-types) echo image/png;; --type) cat "$HOME/pixel.png";; esac\n'


def turn(question: str, *calls: tuple[str, dict[str, Any]], content: str, **more: Any) -> list[dict[str, Any]]:
    """Return fixtures: calls one after another, then an answer."""
    fixtures, last = [], {"hasToolResult": False}
    for number, (name, arguments) in enumerate(calls):
        call = {"id": f"call_{number}", "name": name, "arguments": json.dumps(arguments)}
        fixtures.append({"match": {"userMessage": question, **last}, "response": {"toolCalls": [call], **more}})
        last = {"toolCallId": call["id"]}
    return [*fixtures, {"match": last, "response": {"content": content}}]


def opened(home: Path, **options: Any) -> TerminalScreen:
    terminal = TerminalScreen(home, **options)
    terminal.wait("Ctrl-D leaves")
    return terminal


def user_texts(model: Any) -> list[Any]:
    return [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]


@pytest.mark.parametrize("way", ["key", "setting", "command"])
def test_a_message_reaches_the_running_turn(tmp_path: Path, scripted, way: str) -> None:
    fixtures = turn("begin", ("terminal", {"command": WAIT}), content="Only one done.")
    fixtures.insert(0, {"match": {"userMessage": "use the blue one"}, "response": {"content": "Both done."}})
    with scripted(fixtures) as model:
        home = make_home(tmp_path, model)
        if way == "setting":
            run(home, "config", "set", "display.busy_input_mode", "steer")
        terminal = opened(home)
        terminal.say("begin")
        terminal.wait("[o] Allow once")
        terminal.type("o")
        terminal.gone("[o] Allow once")
        terminal.say("/steer use the blue one" if way == "command" else "use the blue one")
        if way == "key":
            terminal.wait("queued: use the blue one")
            terminal.wait("Enter gives them to the running turn")
            terminal.type("\r")
        terminal.wait("(given to the running turn)")
        (tmp_path / "go").touch()
        terminal.wait("Both done.")
        assert user_texts(model) == ["begin", "use the blue one"]
        assert [m["role"] for m in model.bodies()[-1]["messages"]][-2:] == ["tool", "user"]
        assert terminal.leave() == 0


def test_a_message_interrupts_where_the_config_says_so(tmp_path: Path, scripted) -> None:
    story = {"match": {"userMessage": "story"}, "response": {"content": "word " * 400}, "latency": 100, "chunkSize": 5}
    fixtures = [{"match": {"userMessage": "stop it"}, "response": {"content": "Stopped."}}, story]
    with scripted(fixtures) as model:
        home = make_home(tmp_path, model)
        run(home, "config", "set", "display.busy_input_mode", "interrupt")
        terminal = opened(home)
        terminal.say("a story")
        terminal.wait("word word")
        terminal.say("stop it")
        terminal.wait("(interrupted)")
        terminal.wait("Stopped.")
        assert terminal.leave() == 0


def test_reasoning_and_results_are_folded_until_ctrl_o_opens_them(tmp_path: Path, scripted) -> None:
    fixtures = turn("think", ("calculate", {"expression": "6*7"}), content="42.", reasoning="I multiply six by seven.")
    with scripted(fixtures) as model:
        terminal = opened(make_home(tmp_path, model))
        terminal.say("think")
        terminal.wait("42.")
        terminal.idle()
        assert terminal.shows("✻ Thought for") and not terminal.shows("I multiply")
        terminal.type("\x0f")
        terminal.wait("  │ I multiply six by seven.")
        terminal.wait("Tool results and reasoning are shown.")
        assert terminal.text().count("● calculate 6*7") == 2
        assert "I multiply" not in json.dumps(model.bodies()[-1])
        assert terminal.leave() == 0


def test_an_image_is_pasted_from_the_clipboard(tmp_path: Path, scripted) -> None:
    (tmp_path / "pixel.png").write_bytes(PIXEL)
    program = tmp_path / "wl-paste"
    program.write_text(WL_PASTE)
    program.chmod(0o755)
    with scripted([{"match": {"userMessage": "look"}, "response": {"content": "A cat."}}]) as model:
        home = make_home(tmp_path, model)
        terminal = opened(home, columns=160)
        terminal.type("look \x16")
        terminal.wait("the clipboard cannot be read")
        assert terminal.leave_after_clearing() == 0
        terminal = opened(home, columns=160, WAYLAND_DISPLAY="w", PATH=f"{tmp_path}:/usr/bin:/bin")
        terminal.type("look \x16")
        terminal.wait("@home/images/clip_")
        terminal.type("\r")
        terminal.wait("A cat.")
        assert user_texts(model)[0][1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
        assert terminal.leave() == 0


def test_background_work_has_a_row_and_an_approval_names_the_host(tmp_path: Path, scripted) -> None:
    background = {"command": f"{WAIT}; : https://example.org/data", "background": True}
    with scripted(turn("start it", ("terminal", background), content="It runs.")) as model:
        terminal = opened(make_home(tmp_path, model), columns=100)
        terminal.say("start it")
        terminal.wait("reaches example.org")
        terminal.type("o")
        terminal.wait("It runs.")
        terminal.wait("⧗ runs while [ ! -e go ]")
        (tmp_path / "go").touch()
        terminal.gone("⧗ runs")
        terminal.idle()
        assert terminal.leave() == 0


def test_skills_are_in_the_banner_and_complete_each_other(tmp_path: Path, scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "Served."}}]) as model:
        home = make_home(tmp_path, model)
        for name in ("tea", "toast"):
            (home / "skills" / name).mkdir(parents=True)
            (home / "skills" / name / "SKILL.md").write_text(f"---\ndescription: Make {name}\n---\nMake {name} well.\n")
        terminal = opened(home)
        assert "skills     tea, toast" in terminal.text()
        terminal.type("/tea /to\t")
        terminal.wait(f"{PROMPT} /tea /toast")
        terminal.type("\r")
        terminal.wait("Served.")
        assert "Make tea well." in user_texts(model)[0] and "Make toast well." in user_texts(model)[0]
        assert terminal.leave() == 0
