"""`hermes -z` as a process, with a real server as the model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from peers.scripted import KEY
from prompted import PromptedCommand
from worlds import PROMPTS, Prompt, answer, make_home, power_prompt, results_seen, run, script

EXAMPLES = Path(__file__).parents[1] / "plugins" / "examples"


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda p: p.tool + "-" + p.result)
def test_the_prompts_of_the_guide_reach_the_tool_and_come_back(prompt: Prompt, tmp_path: Path, scripted) -> None:
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        done = run(home, "-z", prompt.question)
        assert (done.returncode, done.stdout) == (0, answer(prompt) + "\n"), done.stderr
        assert prompt.result in results_seen(model)[0]
    assert prompt.tool in done.stderr
    assert prompt.result.split()[0] in done.stderr


COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


@pytest.mark.parametrize(
    ("value", "others", "coloured"),
    [("", [], ["-z"]), ("1", [("--help",), ("doctor", "--offline"), ("plugins", "list")], [])],
)
def test_no_color_holds_for_commands_at_a_terminal(
    tmp_path: Path, scripted, value: str, others: list[tuple[str, ...]], coloured: list[str]
) -> None:
    prompt = power_prompt()
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        commands = [("-z", prompt.question), *others]
        running = {command[0]: PromptedCommand(home, *command, NO_COLOR=value) for command in commands}
        statuses = {name: command.end() for name, command in running.items()}
    assert (statuses["-z"], answer(prompt) in running["-z"].seen) == (0, True)
    assert all(command.seen for command in running.values())
    assert [name for name, command in running.items() if COLOURS.search(command.raw)] == coloured


def test_a_question_on_standard_input_is_answered_too(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        done = run(home, input=prompt.question, stdin=None)
        assert (done.returncode, done.stdout) == (0, answer(prompt) + "\n"), done.stderr


def test_a_session_is_continued_listed_and_shown(tmp_path: Path, scripted) -> None:
    first, second = PROMPTS[:2]
    with scripted(script(first, second)) as model:
        home = make_home(tmp_path, model)
        assert run(home, "-z", first.question).returncode == 0
        done = run(home, "-c", "-z", second.question)
        assert (done.returncode, done.stdout) == (0, answer(second) + "\n"), done.stderr
        users = [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]
        assert users == [first.question, second.question]
        sessions = json.loads(run(home, "sessions", "list", "--json").stdout)
        assert [(s["title"], s["source"]) for s in sessions] == [(first.question, "cli")]
        shown = run(home, "sessions", "show", sessions[0]["id"]).stdout
        assert answer(first) in shown and answer(second) in shown
        again = run(home, "--resume", sessions[0]["id"][:-1], "-z", first.question)
        assert again.returncode == 0, again.stderr


def test_the_request_before_any_history_is_small(tmp_path: Path, scripted) -> None:
    prompt = PROMPTS[0]
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        run(home, "-z", prompt.question)
        body = model.bodies()[0]
    names = {t["function"]["name"] for t in body["tools"]}
    own = {"read_file", "write_file", "search_files", "terminal", "process", "memory", "session_search", "cronjob"}
    own |= {"patch", "clarify", "delegate_task", "todo", "skill_manage"}
    depends = {"execute_code", "web_search", "web_extract", "image_generate"}  # on what is installed and configured
    assert names - depends == {"calculate", "unit_convert", *own}
    body["tools"] = [t for t in body["tools"] if t["function"]["name"] not in depends]
    assert len(json.dumps(body).encode()) <= 12_000


def test_a_harmless_command_runs_in_the_sandbox_though_nobody_can_answer(tmp_path: Path, scripted) -> None:
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": "echo $((6 * 7)) > made; cat made"})}
    fixtures = [
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"hasToolResult": True}, "response": {"content": "Done."}},
    ]
    with scripted(fixtures) as model:
        home = make_home(tmp_path, model, sandbox="bwrap")
        project = tmp_path / "project"
        project.mkdir()
        run(home, "-z", "do it", cwd=project)
        (result,) = results_seen(model)
    if "no sandbox can be made" in result:
        pytest.skip(result)
    assert json.loads(result)["output"] == "42\n"


def test_a_command_is_refused_where_nobody_can_answer(tmp_path: Path, scripted) -> None:
    witness = tmp_path / "witness"
    call = {"id": "c1", "name": "terminal", "arguments": json.dumps({"command": f"touch {witness}"})}
    fixtures = [
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"hasToolResult": True}, "response": {"content": "I may not."}},
    ]
    with scripted(fixtures) as model:
        home = make_home(tmp_path, model)
        done = run(home, "-z", "touch it")
        assert "no user can be asked" in results_seen(model)[0]
    assert done.returncode == 0
    assert not witness.exists()


FAILURES = {
    "wrong key": ({"error": {"message": "bad key", "type": "authentication_error"}, "status": 401}, "key"),
    "unknown model": (
        {
            "error": {"message": "no such model", "type": "invalid_request_error", "code": "model_not_found"},
            "status": 404,
        },
        "scripted-model",
    ),
    "rate limit": ({"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}, "limit"),
    "context too long": (
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            },
            "status": 400,
        },
        "long",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_the_model_is_one_sentence_and_status_1(name: str, tmp_path: Path, scripted) -> None:
    response, word = FAILURES[name]
    with scripted([{"match": {}, "response": response}]) as model:
        home = make_home(tmp_path, model)
        done = run(home, "-z", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert KEY not in done.stdout + done.stderr
    for log in home.rglob("*.log"):
        assert KEY not in log.read_text()


def test_no_key_and_nobody_there_are_one_sentence_each(tmp_path: Path) -> None:
    home = make_home(tmp_path, None)
    for settings, word in (
        ("model: {provider: openrouter, default: some/model}", "OPENROUTER_API_KEY"),
        ("model: {base_url: 'http://127.0.0.1:9/v1', default: m}", "127.0.0.1"),
    ):
        (home / "config.yaml").write_text(settings + "\n")
        done = run(home, "-z", "hello")
        assert (done.returncode, done.stdout) == (1, "")
        assert word in done.stderr
        assert "Traceback" not in done.stderr
        assert len(re.findall(r"^hermes: ", done.stderr, re.MULTILINE)) == 1


def test_weights_that_nobody_knows_are_named_with_those_there_are(tmp_path: Path) -> None:
    home = make_home(tmp_path, None)
    (home / "config.yaml").write_text("model: {provider: local, default: qwen99}\n")
    done = run(home, "-z", "hello")
    assert done.returncode != 0
    assert "'qwen99'" in done.stderr and "qwen2.5-coder-0.5b" in done.stderr


def test_a_stream_that_is_cut_off_is_noticed(tmp_path: Path, scripted) -> None:
    fixture = {
        "match": {},
        "response": {"content": "This sentence is long enough to be cut off somewhere in its middle. " * 20},
        "latency": 30,
        "truncateAfterChunks": 3,
    }
    with scripted([fixture]) as model:
        home = make_home(tmp_path, model)
        done = run(home, "-z", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert "in the middle" in done.stderr


def make_greeter(home: Path) -> None:
    """A plugin with a slash command, which answers, and says something into the session when it is told to."""
    folder = home / "plugins" / "greeter"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: greeter\nversion: 1.0.0\ndescription: greets\n")
    (folder / "__init__.py").write_text(
        "def register(ctx):\n"
        "    def greet(arguments):\n"
        "        if arguments.startswith('ask '):\n"
        "            ctx.inject_message(arguments.removeprefix('ask '))\n"
        "            return None\n"
        "        return f'Hello {arguments}!'\n"
        "    ctx.register_command('greet', greet, description='greets')\n"
        "    ctx.register_command('fall', lambda arguments: 1 // 0, description='fails')\n"
    )
    config = yaml.safe_load((home / "config.yaml").read_text())
    config["plugins"]["enabled"].append("greeter")
    (home / "config.yaml").write_text(yaml.safe_dump(config))


def test_a_plugins_command_runs_and_asks_no_model_by_itself(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        make_greeter(home)
        done = run(home, "-z", "/greet Ann")
        assert (done.returncode, done.stdout) == (0, "Hello Ann!\n"), done.stderr
        assert model.bodies() == []
        asked = run(home, "-z", f"/greet ask {prompt.question}")
        assert (asked.returncode, asked.stdout) == (0, answer(prompt) + "\n"), asked.stderr
        unknown = run(home, "-z", "/gret Ann")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "There is no command /gret. Did you mean /greet?" in unknown.stderr


def test_a_command_that_cannot_run_or_fails_is_an_error(tmp_path: Path) -> None:
    home = make_home(tmp_path, None)
    make_greeter(home)
    config = yaml.safe_load((home / "config.yaml").read_text())
    config["quick_commands"] = {"empty": {"type": "exec"}}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    for line, said in (
        ("/fall", "hermes: Plugin command error: integer division or modulo by zero"),
        ("/empty", "hermes: quick_commands.empty has no command"),
        ("/personality gruff", "hermes: There is no personality 'gruff'."),
        ("/tools gruff", "hermes: There is no tool `gruff`"),
        ("/bundles gruff", "hermes: There is no bundle `gruff`"),
        ("/blueprint gruff", "hermes: There is no blueprint 'gruff'."),
        ("/proposals gruff", "hermes: There is no action 'gruff'"),
    ):
        done = run(home, "-z", line)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert said in done.stderr
    with (home / "plugins" / "greeter" / "__init__.py").open("a") as file:
        file.write("# changed\n")
    done = run(home, "-z", "/greet Ann")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "hermes: /greet is not there: plugin `greeter` does not run: changed since it was granted" in done.stderr


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"tool_loop_guardrails": {"end_after": 2}}, "I stopped: I was about to call todo"),
        ({"limits": {"session_tokens": 1}}, "I stopped: this session has used"),
        ({"agent": {"max_turns": 2}}, "A limit ended the turn"),
    ],
    ids=["loop", "cap", "steps"],
)
def test_a_turn_that_a_limit_ends_fails_and_says_so_on_stderr_alone(
    tmp_path: Path, scripted, config: dict[str, object], told: str
) -> None:
    call = {"id": "c1", "name": "todo", "arguments": "{}"}
    with scripted([{"match": {}, "response": {"content": "Let me see.", "toolCalls": [call]}}]) as model:
        home = make_home(tmp_path, model)
        present = yaml.safe_load((home / "config.yaml").read_text())
        (home / "config.yaml").write_text(yaml.safe_dump({**present, **config}))
        done = run(home, "-z", "do it")
    assert done.returncode == 1
    assert told in done.stderr
    assert "Let me see." in done.stdout and "I stopped" not in done.stdout


def test_an_answer_that_its_limit_of_tokens_cut_fails(tmp_path: Path, scripted) -> None:
    with scripted([{"match": {}, "response": {"content": "Half an ans", "finishReason": "length"}}]) as model:
        done = run(make_home(tmp_path, model), "-z", "tell me")
    assert (done.returncode, done.stdout) == (1, "Half an ans\n")
    assert "limit of tokens was reached" in done.stderr


def test_a_secret_source_brings_the_key_of_the_model_and_the_doctor_says_so(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        (home / "plugins" / "vault").symlink_to(EXAMPLES / "secret_source")
        config = yaml.safe_load((home / "config.yaml").read_text())
        config["plugins"]["enabled"].append("example-secret-source")
        config["secrets"] = {"example-file": {"enabled": True, "path": "vault.txt"}}
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        (home / ".env").unlink()
        (home / "vault.txt").write_text(f"OPENAI_API_KEY={KEY}\nPATH=/nowhere\n")

        done = run(home, "-z", prompt.question)
        assert (done.returncode, done.stdout) == (0, answer(prompt) + "\n"), done.stderr
        found = json.loads(run(home, "doctor", "--json").stdout)
        (home / "vault.txt").unlink()
        failed = run(home, "-z", prompt.question)

    rows = [row["text"] for row in found if row["subject"] == "secrets"]
    assert rows[-1] == "source `example-file`: OPENAI_API_KEY; PATH: the variable decides how programs run"
    assert KEY not in json.dumps(found)
    assert failed.returncode == 1
    assert "secret source `example-file`: nothing was fetched: [Errno 2]" in failed.stderr
