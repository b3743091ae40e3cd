"""`hermes doctor`: everything that an answer needs, looked at, with what to do about it."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_model import find_pin
from peers.scripted import KEY
from worlds import HERMES, PROMPTS, ROOT, environment, make_home, run, script

PLUGINS = Path(__file__).parents[1] / "plugins" / "examples"
SCRIPT = script(PROMPTS[0])


def findings(home: Path, *options: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Return the exit status, and the findings by subject."""
    done = run(home, "doctor", "--json", *options)
    by_subject: dict[str, list[dict[str, Any]]] = {}
    for line in json.loads(done.stdout):
        by_subject.setdefault(line["subject"], []).append(line)
    return done.returncode, by_subject


def levels(found: dict[str, list[dict[str, Any]]]) -> dict[str, set[str]]:
    return {subject: {line["level"] for line in lines} for subject, lines in found.items()}


def test_where_all_is_well_every_line_says_so_and_the_model_was_asked(tmp_path: Path, scripted) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model, sandbox="auto" if shutil.which("bwrap") else "off")
        status, found = findings(home)
        assert (status, "wrong" in set().union(*levels(found).values())) == (0, False), found
        assert list(found) == ["config", "plugins", "state", "secrets", "terminal", "model", "extras", "daemon"]
        assert [line["level"] for line in found["model"]] == ["ok", "note"]
        assert found["model"][1]["text"] == "custom does not list scripted-model"
        assert run(home, "config", "set", "model.default", "gpt-4").returncode == 0

        said = run(home, "doctor").stdout
    assert re.search(r"^✓ model +.*answers\)$", said, re.MULTILINE)
    assert re.search(r"^○ daemon +does not run — `hermes gateway run` starts it\.$", said, re.MULTILINE)


def test_a_server_that_is_gone_is_found_and_offline_it_is_not_asked(tmp_path: Path, scripted) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model)
    status, found = findings(home)
    assert (status, levels(found)["model"]) == (1, {"wrong"})
    assert "the connection was refused" in found["model"][0]["text"]
    assert "Is the server running at" in found["model"][0]["remedy"]
    status, found = findings(home, "--offline")
    assert (status, levels(found)["model"]) == (0, {"ok"})


def test_a_list_that_was_kept_hides_no_server_that_is_gone(tmp_path: Path, scripted) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model)
        assert run(home, "model", "info", "--refresh").returncode == 0
        assert list((home / "cache" / "models").iterdir())
    status, found = findings(home)
    assert (status, levels(found)["model"]) == (1, {"wrong"})


class OpenList(http.server.BaseHTTPRequestHandler):
    """A server that lists its models without a key, and answers chat requests with the right key alone."""

    def do_GET(self) -> None:
        self.reply(200, {"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body["messages"])  # type: ignore[attr-defined]
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self.reply(401, {"error": {"message": "no such key"}})
        elif not body["messages"]:
            self.reply(400, {"error": {"message": "messages: at least one is needed"}})
        else:
            message = {"role": "assistant", "content": "Ready, \x1b[31mas you see."}
            usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.reply(200, {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})

    def reply(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write nothing to the screen."""


@pytest.fixture
def open_list(tmp_path: Path) -> Iterator[tuple[Path, list[Any]]]:
    """A home whose model is at such a server, and what that was asked."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OpenList) as server:
        server.asked = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = make_home(tmp_path, None)
        with (home / "config.yaml").open("a") as file:
            address = f"http://127.0.0.1:{server.server_port}/v1"
            file.write(f"model: {{provider: custom, base_url: '{address}', default: m}}\n")
        yield home, server.asked  # type: ignore[attr-defined]
        server.shutdown()


def give_key(home: Path, key: str) -> None:
    (home / ".env").write_text(f"OPENAI_API_KEY={key}\n")
    (home / ".env").chmod(0o600)


@pytest.mark.parametrize("options", [(), ("--ask",)])
def test_a_wrong_key_behind_an_open_list_is_found(open_list: tuple[Path, list[Any]], options: tuple[str, ...]) -> None:
    home, asked = open_list
    give_key(home, "sk-wrong")
    status, found = findings(home, *options)
    (line,) = found["model"]
    assert (status, line["level"]) == (1, "wrong")
    assert "did not accept the key for model 'm'" in line["text"]
    assert "Check OPENAI_API_KEY" in line["remedy"]
    assert "sk-wrong" not in json.dumps(found)
    assert len(asked) == 1


def test_a_right_key_is_accepted_without_a_question_and_ask_shows_time_and_answer(
    open_list: tuple[Path, list[Any]],
) -> None:
    home, asked = open_list
    give_key(home, KEY)
    status, found = findings(home)
    assert (status, found["model"][0]["level"], asked) == (0, "ok", [[]])
    assert found["model"][0]["text"].endswith("answers)")

    said = run(home, "doctor", "--ask").stdout
    assert re.search(
        r"^✓ model +m of custom answered in \d+\.\d s: Ready, \\x1b\[31mas you see\.$", said, re.MULTILINE
    ), said
    assert "\x1b" not in said
    assert [message["role"] for message in asked[1]] == ["user"]
    assert json.loads(run(home, "sessions", "list", "--json").stdout) == []  # it was no turn
    assert "doctor" in run(home, "insights").stdout  # and is on record


def test_ask_and_offline_exclude_each_other(tmp_path: Path) -> None:
    done = run(make_home(tmp_path, None), "doctor", "--ask", "--offline")
    assert (done.returncode, "not allowed with argument" in done.stderr) == (2, True)


def test_weights_without_the_runtime_name_the_command_that_installs_it(tmp_path: Path) -> None:
    home = make_home(tmp_path, None)
    with (home / "config.yaml").open("a") as file:
        file.write("model: {provider: local, default: smollm2-135m}\n")
    weights = find_pin("smollm2-135m")
    file_of_weights = tmp_path / ".cache" / "hermes" / "models" / weights.file
    file_of_weights.parent.mkdir(parents=True)
    with file_of_weights.open("wb") as sparse:
        sparse.truncate(weights.size)
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'xllamacpp' else found(name, *more)\n"
    )
    done = subprocess.run(
        [HERMES, "doctor"],
        env=environment(home, PYTHONPATH=str(hide)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if "the weights of smollm2-135m are there" in line)
    assert "the runtime xllamacpp is not installed" in line
    assert f"`{sys.executable} -m pip install '{ROOT}[local]'` installs it." in line


def test_the_extras_are_named_and_none_is_installed_from_an_index_by_the_name_of_another_product(
    tmp_path: Path,
) -> None:
    found = findings(make_home(tmp_path, None))[1]["extras"]
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    there = next((line["text"].removeprefix("installed: ").split(", ") for line in found if line["level"] == "ok"), [])
    lacking = {line["text"].split()[0]: line["remedy"] for line in found if line["level"] == "idle"}
    assert {*there, *lacking} == set(declared)
    assert lacking == {name: f"`{sys.executable} -m pip install '{ROOT}[{name}]'`" for name in lacking}


def test_a_plugin_that_fails_and_a_thread_of_one_that_dies_are_found_at_this_start(tmp_path: Path) -> None:
    home = make_home(tmp_path, None)
    bodies = {
        "breaks": "def register(ctx):\n    raise ValueError('no luck')\n",
        "digger": "import threading\ndef dig():\n    raise RuntimeError('in the dark')\n"
        "def register(ctx):\n    thread = threading.Thread(target=dig, name='digger')\n"
        "    thread.start()\n    thread.join()\n",
    }
    for name, body in bodies.items():
        (home / "plugins" / name).mkdir()
        (home / "plugins" / name / "plugin.yaml").write_text(f"name: {name}\n")
        (home / "plugins" / name / "__init__.py").write_text(body)
    config = (home / "config.yaml").read_text()
    (home / "config.yaml").write_text(config.replace("[calculator]", "[calculator, breaks, digger]"))
    wrong = [line["text"] for line in findings(home)[1]["plugins"] if line["level"] == "wrong"]
    assert [text.partition(":")[0] for text in wrong] == ["breaks", "digger (errors)"]
    assert "ValueError: no luck" in wrong[0] and "RuntimeError('in the dark')" in wrong[1]


def test_a_broken_config_a_damaged_store_and_a_broken_plugin_are_all_named(tmp_path: Path, scripted) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model)
        with (home / "config.yaml").open("a") as file:
            file.write("\nserver:\n  prot: 1\n")
        (home / "state.db").write_bytes(b"no database" * 1000)
        folder = home / "plugins" / "empty"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        status, found = findings(home)
    assert status == 1
    assert {subject: "wrong" in them for subject, them in levels(found).items()} == {
        "config": True,
        "plugins": True,
        "state": True,
        "extras": False,
    }
    assert "server.prot" in found["config"][0]["text"]
    assert any("empty" in line["text"] and "plugin.yaml" in line["text"] for line in found["plugins"])


def test_without_a_model_the_way_to_one_is_short(tmp_path: Path) -> None:
    home = make_home(tmp_path, None)
    line = findings(home)[1]["model"][0]
    assert (line["level"], line["text"]) == ("wrong", "There is no model.")
    assert "\n" not in line["remedy"]


@pytest.mark.parametrize(
    ("broken", "expected"), [("", "ok"), ("    def doctor_checks(self):\n        1 / 0\n", "wrong")]
)
def test_a_terminal_backend_of_a_plugin_is_asked_for_its_own_checks(
    tmp_path: Path, scripted, broken: str, expected: str
) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model)
        folder = home / "plugins" / "terminal_env"
        shutil.copytree(PLUGINS / "terminal_env", folder)
        source = (folder / "__init__.py").read_text()
        (folder / "__init__.py").write_text(
            source.replace("    is_remote = False\n", f"    is_remote = False\n{broken}")
        )
        for key, value in (("terminal.backend", "example-elsewhere"), ("plugins.enabled", "[example-terminal-env]")):
            assert run(home, "config", "set", key, value).returncode == 0
        status, found = findings(home)
    lines = [line for line in found["terminal"] if not line["text"].startswith("network of commands: ")]
    assert {line["level"] for line in lines[:-1]} == {expected}, lines
    assert status == (0 if expected == "ok" else 1)
    assert "commands run (example-elsewhere" in lines[-1]["text"]


def test_protection_that_is_asked_for_and_not_there_is_a_warning_at_the_start_and_wrong(
    tmp_path: Path, scripted
) -> None:
    with scripted(SCRIPT) as model:
        home = make_home(tmp_path, model)
        assert run(home, "config", "set", "privacy.redact_pii", "true").stderr.startswith(
            "no effect: `privacy.redact_pii`. This release has no redaction of personal data"
        )
        status, found = findings(home, "--offline")
        words = "no effect: `privacy.redact_pii`"
        assert (status, words in found["config"][0]["text"], found["config"][0]["level"]) == (1, True, "wrong")
        asked = run(home, "-z", PROMPTS[0].question)
        assert (asked.returncode, words in asked.stderr) == (0, True)
        assert words in (home / "logs" / "agent.log").read_text()
