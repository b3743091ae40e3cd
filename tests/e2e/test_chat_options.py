"""`hermes chat -q` with its options, as a script uses it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema

from hermes_agent.console.event_records import records_schema, result_schema
from worlds import PROMPTS, answer, environment, make_home, power_prompt, results_seen, run, script

from worlds import HERMES  # isort: skip

PIXEL = bytes.fromhex("89504e470d0a1a0a")


def test_a_question_is_answered_as_text_json_and_lines(tmp_path: Path, scripted) -> None:
    prompt = PROMPTS[0]
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        text = run(home, "chat", "-q", prompt.question, "--quiet")
        assert (text.returncode, text.stdout, text.stderr) == (0, answer(prompt) + "\n", "")
        value = json.loads(run(home, "chat", "-q", prompt.question, "--json").stdout)
        jsonschema.validate(value, result_schema())
        assert (value["text"], value["tool_calls"][0]["name"]) == (answer(prompt), "calculate")
        done = subprocess.run(
            [HERMES, "chat", "-q", "-", "--jsonl", "--verbose"],
            input=prompt.question,
            env=environment(home),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    for record in records:
        jsonschema.validate(record, records_schema())
    assert [record["event"] for record in records][:3] == ["session", "tool_started", "tool_finished"]
    assert records[-1]["text"] == answer(prompt)
    assert "  │ " in done.stderr


def test_options_choose_model_tools_directory_and_images(tmp_path: Path, scripted) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "cat.png").write_bytes(PIXEL)
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": "pwd"})}
    fixtures = [
        {"match": {"userMessage": "where", "hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"userMessage": "where", "hasToolResult": True}, "response": {"content": "There."}},
        {"match": {"userMessage": "look"}, "response": {"content": "A cat."}},
    ]
    with scripted(fixtures) as model:
        home = make_home(tmp_path, model)
        done = run(home, "chat", "-q", "where", "--cwd", "work", "--toolsets", "terminal", "-m", "m2", "--approve")
        assert (done.returncode, done.stdout) == (0, "There.\n"), done.stderr
        assert str(tmp_path / "work") in results_seen(model)[0]
        body = model.bodies()[-1]
        assert body["model"] == "m2"
        assert {tool["function"]["name"] for tool in body["tools"]} == {"terminal", "process"}
        refused = run(home, "chat", "-q", "where", "--cwd", "work")
        assert "Ran pwd" in refused.stderr and "no user can be asked" in results_seen(model)[0]
        looked = run(home, "chat", "-q", "look", "--image", "cat.png")
        assert looked.stdout == "A cat.\n"
        user = next(m for m in model.bodies()[-1]["messages"] if m["role"] == "user")
        assert user["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
        for arguments, told in (
            (("-q", "x", "--toolsets", "termnal"), "there is no toolset 'termnal'\nDid you mean terminal?"),
            (("-q", "x", "--image", "gone.png"), "gone.png: No such file"),
            (("-q", "x", "--cwd", "gone"), "gone: No such file"),
            (("--first", "x", "--json"), "--json is for one question"),
            (("-q", "x", "--json", "--jsonl"), "not allowed with"),
            (("-q", "x", "--max-turns", "0"), "it must be at least 1"),
        ):
            wrong = run(home, "chat", *arguments)
            assert (wrong.returncode, wrong.stdout) == (2, ""), wrong
            assert told in wrong.stderr


def test_skills_and_the_limit_of_model_requests_hold_for_one_question(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    said = {"match": {"userMessage": "two cups"}, "response": {"content": "Tea is ready."}}
    last = {"match": {"userMessage": "You have used all tool calls"}, "response": {"content": "Not done."}}
    with scripted([said, last, *script(prompt)]) as model:
        home = make_home(tmp_path, model)
        (home / "skills" / "tea").mkdir(parents=True)
        (home / "skills" / "tea" / "SKILL.md").write_text("---\ndescription: Brew tea\n---\nWarm the pot.\n")
        assert run(home, "chat", "-q", "two cups", "--skills", "tea").stdout == "Tea is ready.\n"
        user = next(m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user")
        assert "Warm the pot." in user and user.endswith("two cups")
        before = len(model.bodies())
        limited = run(home, "chat", "-q", prompt.question, "--max-turns", "1", "--json")
        assert json.loads(limited.stdout)["reason"] == "budget" and limited.returncode == 1
        assert "The limit of 1 steps is reached" in limited.stderr
        assert len(model.bodies()) - before == 2  # the step, and the last answer without tools
