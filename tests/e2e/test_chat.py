"""The chat in a pseudo-terminal, as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from terminal_screen import PROMPT, TerminalScreen
from worlds import PROMPTS, answer, make_home, power_prompt, results_seen, run, script

COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


def opened(home: Path, *arguments: str, columns: int = 100, **variables: str) -> TerminalScreen:
    """Return a chat that shows its prompt."""
    terminal = TerminalScreen(home, *arguments, columns=columns, rows=40, **variables)
    terminal.wait("Ctrl-D leaves")
    terminal.wait(PROMPT)
    return terminal


def test_banner_tool_line_answer_and_the_slash_commands(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with scripted(script(prompt, *PROMPTS)) as model:
        terminal = opened(make_home(tmp_path, model))
        assert "hermes-agent 0.20" in terminal.text()
        assert "calculator: calculate, unit_convert" in terminal.text()
        assert f"scripted-model (custom) at {model.base_url}" in terminal.text()
        terminal.say(prompt.question)
        terminal.wait(f"● calculate {prompt.arguments['expression']} → {prompt.result}")
        terminal.wait(answer(prompt))
        assert prompt.result in results_seen(model)[0]
        terminal.say("/plugins")
        terminal.wait("Plugins (1):")
        terminal.wait("✓ calculator v1.0.0 (2 tools, 1 hooks)")
        terminal.say("/help")
        terminal.wait("/model [NAME]")
        terminal.wait("!COMMAND runs a command of yours")
        terminal.say("/model other-model")
        terminal.wait("model: other-model (custom)")
        terminal.say("/new")
        terminal.wait("New session")
        terminal.say(PROMPTS[1].question)
        terminal.wait(answer(PROMPTS[1]))
        assert model.bodies()[-1]["model"] == "other-model"
        assert [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"] == [PROMPTS[1].question]
        terminal.say("/nonsense")
        terminal.wait("There is no command /nonsense")
        terminal.say("/quit")
        assert terminal.end() == 0
    home = tmp_path / "home"
    assert len(json.loads(run(home, "sessions", "list", "--json").stdout)) == 2
    assert prompt.question in (home / "history").read_text()
    assert (home / "history").stat().st_mode & 0o777 == 0o600


def test_the_first_question_is_asked_before_the_prompt(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        terminal = TerminalScreen(home, "--first", prompt.question, columns=120)
        terminal.wait(answer(prompt))
        terminal.wait(PROMPT)
        assert terminal.leave() == 0
        done = run(home, "--first", prompt.question)
    assert done.returncode == 0
    assert "calculator: calculate, unit_convert" in done.stdout
    assert answer(prompt) in done.stdout


def test_a_session_gets_a_title_and_is_gone_back_to(tmp_path: Path, scripted) -> None:
    first, second = PROMPTS[:2]
    with scripted(script(first, second)) as model:
        terminal = opened(make_home(tmp_path, model))
        for line, answered in (
            ("/titel plans", "There is no command /titel. Did you mean /title?"),
            ("/title plans", "There is no session yet."),
            ("/resume", "There are no sessions yet."),
            (first.question, answer(first)),
            ("/title plans", "Title: plans"),
            ("/new", "New session"),
            ("/resume other", "There is no session 'other'. /resume lists them."),
            ("/resume Plans", ": plans"),
            ("/resume plans", "This is the current session."),
            (second.question, answer(second)),
        ):
            terminal.say(line)
            terminal.wait(answered)
        assert terminal.leave() == 0
        users = [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]
    assert users == [first.question, second.question]


@pytest.mark.parametrize("line", ["exit", "Quit", "/exit"])
def test_a_word_that_means_leaving_leaves(tmp_path: Path, scripted, line: str) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = opened(make_home(tmp_path, model))
        terminal.say(line)
        assert terminal.end() == 0
        assert model.bodies() == []


def test_clear_empties_the_screen_and_starts_a_session_and_compact_is_compress(tmp_path: Path, scripted) -> None:
    first, second = PROMPTS[:2]
    with scripted(script(first, second)) as model:
        terminal = opened(make_home(tmp_path, model))
        for line, answered in (
            (first.question, answer(first)),
            ("/compact", "There is nothing in this conversation"),
            ("/clear", "New session"),
        ):
            terminal.say(line)
            terminal.wait(answered)
        assert answer(first) not in "\n".join(terminal.visible())
        terminal.say(second.question)
        terminal.wait(answer(second))
        assert terminal.leave() == 0
        users = [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]
    assert users == [second.question]


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_no_color_holds_for_answers_prompt_and_completion(tmp_path: Path, scripted, value: str, coloured: bool) -> None:
    with scripted(script(PROMPTS[0])) as model:
        terminal = opened(make_home(tmp_path, model), NO_COLOR=value)
        terminal.say("/nonsense")
        terminal.wait("There is no command")
        terminal.say(PROMPTS[0].question)
        terminal.wait(answer(PROMPTS[0]))
        terminal.type("/plu")
        terminal.wait("List plugins and their state")
        terminal.type("\t")
        terminal.wait(f"{PROMPT} /plugins")
        terminal.type("\r")
        terminal.wait("Plugins (1):")
        assert terminal.leave() == 0
    assert bool(COLOURS.search(terminal.raw)) is coloured


def test_control_c_stops_the_answer_and_the_conversation_goes_on(tmp_path: Path, scripted) -> None:
    slow = {
        "match": {"userMessage": "tell me a long story"},
        "response": {"content": "word " * 400},
        "latency": 200,
    }
    with scripted([slow, *script(PROMPTS[0])]) as model:
        terminal = opened(make_home(tmp_path, model))
        terminal.say("tell me a long story")
        terminal.wait("word word")
        terminal.type("\x03")
        terminal.wait("(interrupted)")
        terminal.say(PROMPTS[0].question)
        terminal.wait(answer(PROMPTS[0]))
        roles = [m["role"] for m in model.bodies()[-1]["messages"]]
        assert roles == ["system", "user", "assistant", "user", "assistant", "tool"]
        terminal.type("\x03")
        terminal.wait("Press Ctrl-C again to leave.")
        terminal.type("\x03")
        assert terminal.end() == 0


def test_a_command_runs_only_after_the_user_allowed_it(tmp_path: Path, scripted) -> None:
    witness = tmp_path / "witness"
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": f"touch {witness}; echo touched-it"})}
    fixtures = [
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"hasToolResult": True}, "response": {"content": "All done."}},
    ]
    for keys, runs, shown in (("d", False, "denied: touch"), ("o", True, "allowed once: touch")):
        with scripted(fixtures) as model:
            (tmp_path / keys).mkdir()
            terminal = opened(make_home(tmp_path / keys, model))
            terminal.say("touch it")
            terminal.wait("terminal wants to run a command:")
            terminal.wait("[o] Allow once")
            assert not witness.exists()
            terminal.type(keys)
            terminal.wait(shown)
            terminal.wait("All done.")
            assert ("touched-it" in results_seen(model)[0]) is runs
            assert witness.exists() is runs
            assert terminal.leave() == 0


def test_a_denial_with_a_reason_reaches_the_model(tmp_path: Path, scripted) -> None:
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": "rm -rf /srv/data"})}
    fixtures = [
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"hasToolResult": True}, "response": {"content": "All done."}},
    ]
    with scripted(fixtures) as model:
        terminal = opened(make_home(tmp_path, model))
        terminal.say("remove it")
        terminal.wait("[r] Deny, and say why")
        terminal.type("\x1b[A\r")  # up from the first row is the last one
        terminal.wait("Reason:")
        terminal.type("move it to /tmp\r")
        terminal.wait("All done.")
        assert "move it to /tmp" in results_seen(model)[0]
        assert terminal.leave() == 0


def test_the_banner_says_what_does_not_work_and_the_command_for_it(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        home = make_home(tmp_path, model)
        waiting = home / "plugins" / "weather"
        waiting.mkdir()
        (waiting / "plugin.yaml").write_text("name: weather\nversion: 1.0.0\n")
        (waiting / "__init__.py").write_text("def register(ctx): ...\n")
        text = (home / "config.yaml").read_text().replace("[calculator]", "[calculator, calulator]")
        (home / "config.yaml").write_text(text + "memory: {provider: mem1}\n")
        terminal = opened(home, columns=120)
        shown = " ".join(terminal.text().split())  # paths differ in length, and lines break elsewhere
        assert terminal.leave() == 0
    assert "! plugins.enabled: unknown plugin `calulator` (did you mean `calculator`?)" in shown
    assert "! plugin `weather` is there and not enabled: hermes plugins enable weather" in shown
    assert "memory.provider: there is no memory" in shown
