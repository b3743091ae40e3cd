"""`hermes setup`, at a terminal and in a pipe, from what a machine has to the first answer."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pexpect
import pytest
import yaml

from compat.homes.survey import build_home
from hermes_agent.app.setup.user_unit import unit_path
from prompted import PromptedCommand
from worlds import HERMES, environment

ANSWER = "Hello from the server."
KEY = "sk-setup-0123456789abcdef"


class ModelServer(ThreadingHTTPServer):
    """A server of OpenAI's chat completions that lists some models and has one answer."""

    daemon_threads = True

    def __init__(self, models: tuple[str, ...], key: str = "") -> None:
        self.models, self.key = models, key
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _error(self, status: int, message: str) -> None:
        self._send(status, json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode())

    def do_GET(self) -> None:
        self._send(200, json.dumps({"data": [{"id": name} for name in self.server.models]}).encode())

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            self._error(401, "wrong key")
            return
        if not request["messages"]:
            self._error(400, "messages must not be empty")
            return
        self.server.asked.append(request["model"])
        base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
        chunks: list[Any] = [{"delta": {"role": "assistant", "content": ANSWER}, "finish_reason": None}]
        chunks.append({"delta": {}, "finish_reason": "stop"})
        lines = [f"data: {json.dumps(base | {'choices': [{'index': 0, **chunk}]})}\n\n" for chunk in chunks]
        self._send(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output free of requests."""


@pytest.fixture
def serve() -> Iterator[Any]:
    servers: list[ModelServer] = []

    def start(*models: str, key: str = "") -> ModelServer:
        server = ModelServer(models, key)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def settings(home: Path) -> Any:
    return yaml.safe_load((home / "config.yaml").read_text())


def in_pipe(home: Path, *arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    home.parent.mkdir(exist_ok=True, parents=True)
    return subprocess.run(
        [HERMES, "setup", *arguments],
        env=environment(home, **variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def finish(terminal: PromptedCommand) -> int:
    """Decline what follows the model, and return the exit status after the first answer."""
    terminal.expect("Set up a chat platform? [y/N]")
    terminal.say("n")
    terminal.expect(ANSWER)
    terminal.expect("`hermes doctor` checks everything.")
    return terminal.leave()


def interrupt(terminal: PromptedCommand, text: str) -> None:
    """Press Ctrl-C until the program says `text`: between a prompt and its read, Python only notes the signal.

    A second one while the program ends would end it at once.
    """
    for _ in range(6):
        terminal.process.sendintr()
        if terminal.process.expect_exact([text, pexpect.TIMEOUT], timeout=10) == 0:
            return
    raise AssertionError(f"the program does not say {text!r}: {terminal.process.before}")


def test_with_nothing_there_a_server_of_ones_own_is_named(home: Path, serve: Any) -> None:
    server = serve("own-model")
    terminal = PromptedCommand(home, "setup")
    terminal.expect("Found: no key, no model server on this machine")
    terminal.expect("Number or name:")
    terminal.say("another OpenAI-compatible server")
    terminal.expect("Address")
    terminal.say(server.base_url)
    terminal.expect("The model is set in")

    assert finish(terminal) == 0
    assert settings(home)["model"] == {"provider": "custom", "base_url": server.base_url, "default": "own-model"}
    assert server.asked == ["own-model"]
    assert not (home / "setup.json").exists()


def test_a_key_of_the_environment_is_found_tried_and_copied(home: Path, serve: Any) -> None:
    server = serve("big", "small", key=KEY)
    terminal = PromptedCommand(home, "setup", OPENROUTER_API_KEY=KEY, OPENROUTER_BASE_URL=server.base_url)
    terminal.expect("a key of OpenRouter (OPENROUTER_API_KEY)")
    terminal.expect("Number or name:")
    terminal.say("")
    terminal.expect("Which model of OpenRouter?")
    terminal.expect("Number or name:")
    terminal.say("small")
    terminal.expect("Copy OPENROUTER_API_KEY into")
    terminal.say("")
    assert finish(terminal) == 0
    assert settings(home)["model"] == {"provider": "openrouter", "default": "small"}
    assert f"OPENROUTER_API_KEY={KEY}" in (home / ".env").read_text()
    assert KEY not in terminal.seen and KEY not in (home / "config.yaml").read_text()


def test_of_three_models_of_ollama_one_is_chosen_by_a_part_of_its_name(home: Path, serve: Any) -> None:
    server = serve("llama4:8b", "qwen4:4b", "qwen4:14b")
    terminal = PromptedCommand(home, "setup", OLLAMA_BASE_URL=server.base_url)
    terminal.expect(f"Ollama at {server.base_url}: 3 models")
    terminal.expect("Number or name:")
    terminal.say("1")
    terminal.expect("Which model of Ollama?")
    terminal.expect("Number or name:")
    terminal.say("qwen")
    terminal.expect("qwen4:14b")
    terminal.expect("Number or name:")
    terminal.say("2")
    assert finish(terminal) == 0
    assert settings(home)["model"]["default"] == "qwen4:14b"
    assert server.asked == ["qwen4:14b"]


def test_servers_of_every_kind_on_this_machine_are_found_with_their_models(home: Path, serve: Any) -> None:
    kinds = {"OLLAMA": "Ollama", "LLAMA": "llama.cpp", "LM": "LM Studio", "VLLM": "vLLM"}
    servers = {kind: serve("own-model", "other-model") for kind in kinds}
    variables = {f"{kind}_BASE_URL": server.base_url for kind, server in servers.items()}
    done = in_pipe(home, "--no-platform", **variables)
    assert done.returncode == 2 and "Name it with --provider NAME" in done.stderr
    for kind, name in kinds.items():
        assert f"{name} at {servers[kind].base_url}: 2 models" in done.stdout


def test_a_wrong_key_is_asked_for_again_and_is_never_stored(home: Path, serve: Any) -> None:
    server = serve("big", key=KEY)
    terminal = PromptedCommand(home, "setup", "--provider", "openrouter", OPENROUTER_BASE_URL=server.base_url)
    terminal.expect("Key of OpenRouter")
    terminal.say("sk-wrong")
    terminal.expect("Number or name:")
    terminal.say("")
    terminal.expect("Answer again? [Y/n]")
    assert not (home / ".env").exists() and not (home / "config.yaml").exists()
    terminal.say("")
    terminal.expect("Key of OpenRouter")
    terminal.say(KEY)
    terminal.expect("Number or name:")
    terminal.say("")
    terminal.expect("OPENROUTER_API_KEY is stored in")
    assert finish(terminal) == 0
    assert "sk-wrong" not in (home / ".env").read_text()


def test_a_server_that_refuses_a_request_without_a_key_is_tried_with_one(home: Path, serve: Any) -> None:
    server = serve("own-model", key=KEY)
    terminal = PromptedCommand(home, "setup", "--base-url", server.base_url)
    terminal.expect("Answer again? [Y/n]")
    terminal.say("")
    terminal.expect("empty: none")
    terminal.say(KEY)
    terminal.expect("CUSTOM_API_KEY is stored in")
    assert finish(terminal) == 0
    assert settings(home)["model"]["base_url"] == server.base_url
    assert f"CUSTOM_API_KEY={KEY}" in (home / ".env").read_text()


def test_an_interrupted_setup_writes_no_setting_and_goes_on_with_its_answers(home: Path, serve: Any) -> None:
    server = serve("one", "two")
    terminal = PromptedCommand(home, "setup", OLLAMA_BASE_URL=server.base_url)
    terminal.expect("Number or name:")
    terminal.say("1")
    terminal.expect("Which model of Ollama?")
    terminal.expect("Number or name:")
    terminal.say("two")
    terminal.expect("Set up a chat platform? [y/N]")
    interrupt(terminal, "Setup is interrupted")
    assert terminal.leave() == 130
    again = PromptedCommand(home, "setup", OLLAMA_BASE_URL=server.base_url)
    again.expect("Go on with ollama? [Y/n]")
    again.say("")
    again.expect("Enter chooses two.")
    again.expect("Number or name:")
    again.say("")
    assert finish(again) == 0
    assert settings(home)["model"]["default"] == "two"


def test_on_a_managed_host_the_nix_lines_are_printed_and_nothing_is_written(home: Path, serve: Any) -> None:
    server = serve("one")
    home.mkdir(parents=True)
    declared = home.parent / "declared.yaml"
    declared.write_text("display:\n  skin: default\n")
    done = in_pipe(home, OLLAMA_BASE_URL=server.base_url, HERMES_DECLARED_CONFIG=str(declared))
    assert done.returncode == 0, done.stderr
    assert (
        f'settings.model = {{ provider = "ollama"; default = "one"; base_url = "{server.base_url}"; }};' in done.stdout
    )
    assert "The first answer comes after `nixos-rebuild switch`." in done.stdout
    assert not (home / "config.local.yaml").exists() and not (home / "setup.json").exists()


def test_on_a_managed_host_a_terminal_gets_the_same_questions_and_the_nix_lines(home: Path, serve: Any) -> None:
    server = serve("one", "two")
    home.mkdir(parents=True)
    declared = home.parent / "declared.yaml"
    declared.write_text("display:\n  skin: default\n")
    terminal = PromptedCommand(home, "setup", OLLAMA_BASE_URL=server.base_url, HERMES_DECLARED_CONFIG=str(declared))
    terminal.expect("Number or name:")
    terminal.say("1")
    terminal.expect("Which model of Ollama?")
    terminal.expect("Number or name:")
    terminal.say("two")
    terminal.expect("services.hermes-agent = {")
    terminal.expect('default = "two";')
    terminal.expect("The first answer comes after `nixos-rebuild switch`.")
    assert terminal.leave() == 0
    assert server.asked == []  # it was tried without a question
    assert not (home / "config.local.yaml").exists() and not (home / "setup.json").exists()


def test_flags_alone_set_up_in_a_pipe_with_the_key_on_standard_input(home: Path, serve: Any) -> None:
    server = serve("big", key=KEY)
    flags = ("--provider", "openrouter", "--model", "big", "--key-stdin", "--no-platform", "--service", "none")
    done = in_pipe(home, *flags, stdin=f"{KEY}\n", OPENROUTER_BASE_URL=server.base_url)
    assert done.returncode == 0, done.stderr
    assert ANSWER in done.stdout
    assert f"OPENROUTER_API_KEY={KEY}" in (home / ".env").read_text()
    assert KEY not in done.stdout + done.stderr


def test_a_home_of_another_program_is_found_and_imported_before_the_model_is_chosen(home: Path, serve: Any) -> None:
    home.parent.mkdir(exist_ok=True)
    build_home("0.19.0", home.parent / ".hermes-upstream")
    server = serve("anthropic/claude", key="sk-or-v1-0123456789abcdef0123456789abcdef")
    terminal = PromptedCommand(home, "setup", HOME=str(home.parent), OPENROUTER_BASE_URL=server.base_url)
    terminal.expect(f"Found: the home of upstream, {home.parent / '.hermes-upstream'}")
    terminal.expect("Copy its sessions, memory, skills and settings? [Y/n]")
    terminal.say("y")
    terminal.expect("`hermes import undo` takes it back.")
    terminal.expect("Go on with openrouter? [Y/n]")
    terminal.say("y")
    terminal.expect("Number or name:")
    terminal.say("anthropic/claude")
    terminal.expect("The model is set in")

    assert finish(terminal) == 0
    assert (home / "skills/water/SKILL.md").exists() and server.asked == ["anthropic/claude"]
    done = in_pipe(home, "--import", "upstream", HOME=str(home.parent))
    assert done.returncode != 0 and "no home of it" in done.stderr  # it is imported already


def test_without_an_answer_a_home_of_another_program_is_named_and_nothing_is_imported(home: Path, serve: Any) -> None:
    home.parent.mkdir(exist_ok=True)
    build_home("0.19.0", home.parent / ".hermes")
    server = serve("big", key=KEY)
    flags = ("--provider", "openrouter", "--model", "big", "--key-stdin", "--no-platform", "--service", "none")
    more = {"HOME": str(home.parent), "OPENROUTER_BASE_URL": server.base_url}
    done = in_pipe(home, *flags, stdin=f"{KEY}\n", **more)
    assert done.returncode == 0, done.stderr
    assert f"`hermes import upstream {home.parent / '.hermes'}` copies" in done.stdout
    assert not (home / "imports").exists() and not (home / "memories").exists()
    done = in_pipe(home, *flags, "--import", "upstream", stdin=f"{KEY}\n", **more)
    assert done.returncode == 0 and (home / "memories/USER.md").exists(), done.stderr


def test_a_setup_in_the_home_of_upstream_says_how_to_move_it(tmp_path: Path) -> None:
    done = in_pipe(build_home("0.19.0", tmp_path / "theirs"))
    assert done.returncode != 0 and f"mv {tmp_path / 'theirs'} {tmp_path / 'theirs-upstream'}" in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "the model's provider is not given, and there is no terminal to ask at"),
        (("--provider", "opnrouter"), "there is no provider 'opnrouter'"),
        (("--provider", "openrouter"), "the key of OpenRouter is not given"),
        (("--base-url", "localhost:80"), "--base-url: 'localhost:80' is no http or https address"),
        (("--provider", "openrouter", "--key-stdin"), "standard input holds no key"),
    ],
)
def test_in_a_pipe_what_is_missing_is_one_sentence_and_nothing_is_written(
    home: Path, flags: tuple[str, ...], said: str
) -> None:
    done = in_pipe(home, *flags)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (home / "config.yaml").exists()


def test_a_server_that_refuses_the_key_ends_a_setup_without_questions(home: Path, serve: Any) -> None:
    server = serve("big", key=KEY)
    flags = ("--provider", "openrouter", "--model", "big", "--key-stdin")
    done = in_pipe(home, *flags, stdin="sk-wrong\n", OPENROUTER_BASE_URL=server.base_url)
    assert done.returncode not in (0, 2)
    assert "key" in done.stderr.splitlines()[-2]
    assert not (home / ".env").exists() and not (home / "config.yaml").exists()


def test_a_service_without_a_user_manager_says_why(home: Path, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("one")
    done = in_pipe(home, "--no-platform", "--service", "user", OLLAMA_BASE_URL=server.base_url)
    assert done.returncode == 1
    assert "no user service can be started" in done.stderr
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    assert not unit_path().exists()


GROWN = """
import os
from pathlib import Path
from hermes_agent.contracts.model_client import ClientProfile, ModelAnswer, TextPart
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import Message, Usage
from providers import register_provider

SEED = Path(os.environ["HERMES_HOME"]) / "seed"


class Client:
    provider, base_url, url, api_mode, fits_within = "grown", "", "", "chat_completions", 0

    async def stream(self, request):
        yield TextPart("I have grown.")
        yield ModelAnswer(Message("assistant", "I have grown."), "stop", Usage(), request.model, listed_cost_usd=0.0)

    def is_priced(self, model): return True
    def unsupported(self, model, options): return None
    def warm_up(self): pass
    async def aclose(self): pass


class Grown(ClientProfile):
    def find_model(self, services):
        return "sprout" if SEED.exists() else ""

    def make_client(self, services):
        return Client()

    def prepare(self, services):
        if os.environ.get("NO_WATER"):
            raise UserError("there is no water", hint="Fetch some.")
        SEED.write_text("")


register_provider(Grown(name="grown", display_name="the garden", setup_text="grows", download_text="one seed"))
"""


def plant(home: Path) -> None:
    """Write and enable a plugin with a provider that must be prepared before it can answer."""
    folder = home / "plugins" / "garden"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: garden\nversion: 1.0.0\nkind: model-provider\n")
    (folder / "__init__.py").write_text(GROWN)
    (home / "config.yaml").write_text("plugins: {enabled: [garden]}\n")


def test_a_provider_of_a_plugin_with_a_client_of_its_own_is_offered_and_prepared(home: Path) -> None:
    plant(home)
    terminal = PromptedCommand(home, "setup")
    terminal.expect("the garden: grows (one seed)")
    terminal.expect("Number or name")
    terminal.say("the garden")
    terminal.expect("Set up a chat platform? [y/N]")
    terminal.say("n")
    terminal.expect("I have grown.")
    terminal.expect("`hermes doctor` checks everything.")
    assert terminal.leave() == 0
    assert settings(home)["model"] == {"provider": "grown"}


def test_a_provider_that_cannot_be_prepared_says_why(home: Path) -> None:
    plant(home)
    done = in_pipe(home, "--provider", "grown", "--no-platform", NO_WATER="1")
    assert done.returncode == 1 and "there is no water" in done.stderr and "Fetch some." in done.stderr
    assert "model" not in settings(home)
