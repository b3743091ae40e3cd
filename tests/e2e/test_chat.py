"""The conversation in a pseudo-terminal, as a person types it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pexpect
import pytest

from worlds import HERMES, PROMPTS, answer, environment, make_home, power_prompt, results_seen, run, script

PROMPT = "❯"
COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|[\r\x07]")


class Terminal:
    """A person at a terminal of 100 columns."""

    def __init__(self, home: Path, *arguments: str, **variables: str) -> None:
        self.process = pexpect.spawn(
            HERMES,
            list(arguments),
            env=environment(home, TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1", **variables),  # type: ignore[arg-type]
            cwd=str(home.parent),
            encoding="utf-8",
            dimensions=(40, 100),
            timeout=30,
        )
        self.seen = ""
        self.raw = ""

    def expect(self, text: str) -> str:
        """Wait for `text` and return everything up to it, without escapes."""
        self.process.expect_exact(text)
        piece = ESCAPES.sub("", self.process.before + text)
        self.seen += piece
        self.raw += self.process.before + text
        return piece

    def say(self, text: str) -> None:
        self.process.send(text + "\r")

    def leave(self, line: str = "") -> int:
        """Leave with a line, or with Ctrl-D, and return the exit status."""
        if line:
            self.say(line)
        else:
            self.process.sendeof()
        self.process.expect(pexpect.EOF)
        self.seen += ESCAPES.sub("", self.process.before)
        self.raw += self.process.before
        self.process.close()
        return int(self.process.exitstatus or 0)


def test_banner_tool_line_answer_and_the_slash_commands(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with scripted(script(prompt, *PROMPTS)) as model:
        terminal = Terminal(make_home(tmp_path, model))
        banner = terminal.expect(PROMPT)
        assert "hermes-agent 0.20" in banner
        assert "calculator: calculate, unit_convert" in banner
        assert "scripted-model" in banner
        terminal.say(prompt.question)
        terminal.expect(f"calculate {json.dumps(prompt.arguments)}")
        terminal.expect(answer(prompt))
        terminal.expect(PROMPT)
        assert prompt.result in results_seen(model)[0]
        terminal.say("/plugins")
        terminal.expect("Plugins (1):")
        terminal.expect("✓ calculator v1.0.0 (2 tools, 1 hooks)")
        terminal.say("/help")
        terminal.expect("/model [NAME]")
        terminal.expect("/quit")
        terminal.say('/model "half-quoted')
        terminal.expect("model: half-quoted (custom)")
        terminal.say("/model other-model")
        terminal.expect("model: other-model (custom)")
        terminal.say("/new")
        terminal.expect("New session")
        terminal.say(PROMPTS[1].question)
        terminal.expect(answer(PROMPTS[1]))
        assert model.bodies()[-1]["model"] == "other-model"
        assert [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"] == [PROMPTS[1].question]
        terminal.say("/nonsense")
        terminal.expect("There is no command /nonsense")
        terminal.say("/quit")
        terminal.process.expect(pexpect.EOF)
        terminal.process.close()
        assert terminal.process.exitstatus == 0
    home = tmp_path / "home"
    assert len(json.loads(run(home, "sessions", "list", "--json").stdout)) == 2
    assert prompt.question in (home / "history").read_text()
    assert (home / "history").stat().st_mode & 0o777 == 0o600


def test_the_first_question_is_asked_before_the_prompt(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        terminal = Terminal(home, "--first", prompt.question)
        terminal.expect(answer(prompt))
        terminal.expect(PROMPT)
        assert terminal.leave() == 0
        done = run(home, "--first", prompt.question)
    assert done.returncode == 0
    assert "calculator: calculate, unit_convert" in done.stdout
    assert answer(prompt) in done.stdout


def test_a_session_gets_a_title_and_is_gone_back_to(tmp_path: Path, scripted) -> None:
    first, second = PROMPTS[:2]
    with scripted(script(first, second)) as model:
        home = make_home(tmp_path, model)
        terminal = Terminal(home)
        for line, answered in (
            ("/titel plans", "There is no command /titel. Did you mean /title?"),
            ("/title plans", "There is no session yet."),
            ("/resume", "There are no sessions yet."),
            (first.question, answer(first)),
            ("/title plans", "Title: plans"),
            ("/new", "New session"),
            ("/resume other", "There is no session 'other'. /resume lists them."),
            ("/resume Plans", ": plans"),
            ("/resume plans", "You are in it."),
            (second.question, answer(second)),
        ):
            terminal.expect(PROMPT)
            terminal.say(line)
            terminal.expect(answered)
        terminal.expect(PROMPT)
        assert terminal.leave() == 0
        users = [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]
    assert users == [first.question, second.question]


@pytest.mark.parametrize("line", ["exit", "Quit", "/exit"])
def test_a_word_that_means_leaving_leaves(tmp_path: Path, scripted, line: str) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = Terminal(make_home(tmp_path, model))
        terminal.expect(PROMPT)
        assert terminal.leave(line) == 0
        assert model.bodies() == []


def test_clear_empties_the_screen_and_starts_a_session_and_compact_is_compress(tmp_path: Path, scripted) -> None:
    first, second = PROMPTS[:2]
    with scripted(script(first, second)) as model:
        terminal = Terminal(make_home(tmp_path, model))
        for line, answered in (
            (first.question, answer(first)),
            ("/compact", "There is nothing in this conversation"),
            ("/clear", "New session"),
            (second.question, answer(second)),
        ):
            terminal.expect(PROMPT)
            terminal.say(line)
            terminal.expect(answered)
        terminal.expect(PROMPT)
        assert terminal.leave() == 0
        users = [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]
    assert users == [second.question]
    assert "\x1b[2J" in terminal.raw


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_no_color_holds_for_answers_prompt_and_completion(tmp_path: Path, scripted, value: str, coloured: bool) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = Terminal(make_home(tmp_path, model), NO_COLOR=value)
        terminal.expect(PROMPT)
        terminal.say("/nonsense")
        terminal.expect("There is no command")
        terminal.expect(PROMPT)
        terminal.say(PROMPTS[0].question)
        terminal.expect(answer(PROMPTS[0]))
        terminal.expect(PROMPT)
        terminal.process.send("/plu\t")
        terminal.expect("/plugins")
        terminal.say("")
        terminal.expect("Plugins (1):")  # a prompt before it would be that of the line that is typed
        terminal.expect(PROMPT)
        assert terminal.leave() == 0
    assert bool(COLOURS.search(terminal.raw)) is coloured


def test_slash_commands_complete(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = Terminal(make_home(tmp_path, model))
        terminal.expect(PROMPT)
        terminal.process.send("/plu\t")
        terminal.expect("/plugins")
        terminal.process.send("\r")
        terminal.expect("Plugins (1):")
        terminal.expect(PROMPT)
        assert terminal.leave() == 0


def test_control_c_stops_the_answer_and_the_conversation_goes_on(tmp_path: Path, scripted) -> None:
    slow = {
        "match": {"userMessage": "tell me a long story"},
        "response": {"content": "word " * 400},
        "latency": 200,
    }
    with scripted([slow, *script(PROMPTS[0])]) as model:
        terminal = Terminal(make_home(tmp_path, model))
        terminal.expect(PROMPT)
        terminal.say("tell me a long story")
        terminal.expect("word word")
        terminal.process.sendintr()
        terminal.expect("(interrupted)")
        terminal.expect(PROMPT)
        terminal.say(PROMPTS[0].question)
        terminal.expect(answer(PROMPTS[0]))
        roles = [m["role"] for m in model.bodies()[-1]["messages"]]
        assert roles == ["system", "user", "assistant", "user", "assistant", "tool"]
        terminal.expect(PROMPT)
        assert terminal.leave() == 0


def test_a_command_runs_only_after_the_person_allowed_it(tmp_path: Path, scripted) -> None:
    witness = tmp_path / "witness"
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": f"touch {witness}; echo touched-it"})}
    fixtures = [
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"hasToolResult": True}, "response": {"content": "All done."}},
    ]
    for reply, runs in (("d", False), ("o", True)):
        with scripted(fixtures) as model:
            (tmp_path / reply).mkdir()
            terminal = Terminal(make_home(tmp_path / reply, model))
            terminal.expect(PROMPT)
            terminal.say("touch it")
            terminal.expect("terminal wants to run a command:")
            terminal.expect("Allow? [o]nce, for this [s]ession, [d]eny:")
            assert not witness.exists()
            terminal.say(reply)
            terminal.expect("All done.")
            assert ("touched-it" in results_seen(model)[0]) is runs
            assert witness.exists() is runs
            terminal.expect(PROMPT)
            assert terminal.leave() == 0
