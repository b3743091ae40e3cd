"""The daemon over HTTP, with the official client, and a real server as the model."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest

from peers.running import free_port, running
from worlds import HERMES, PROMPTS, Prompt, answer, environment, make_home, power_prompt, results_seen, run, script


@contextlib.contextmanager
def daemon(home: Path, *before: str, **more: str) -> Iterator[tuple[openai.OpenAI, subprocess.Popen[bytes]]]:
    """Run `hermes gateway run`, with a command `before` it, and yield a client with the key that it prints."""
    port = free_port()
    environ = environment(home, API_SERVER_PORT=str(port), **more)
    command = [*before, HERMES, "gateway", "run"]
    with running(command, host="127.0.0.1", port=port, path="/health", environ=environ) as process:
        key = more.get("API_SERVER_KEY") or run(home, "gateway", "key").stdout.strip()
        client = openai.OpenAI(api_key=key, base_url=f"http://127.0.0.1:{port}/v1", max_retries=0, timeout=30)
        with client:
            yield client, process


def ask(client: openai.OpenAI, question: str, **more: object) -> str:
    done = client.chat.completions.create(
        model="hermes-agent",
        messages=[{"role": "user", "content": question}],
        **more,  # type: ignore[call-overload]
    )
    return str(done.choices[0].message.content)


def test_the_prompts_of_the_guide_are_answered(tmp_path: Path, scripted) -> None:
    prompts: tuple[Prompt, ...] = (*PROMPTS, power_prompt())
    with scripted(script(*prompts)) as model, daemon(make_home(tmp_path, model)) as (client, _):
        for prompt in prompts:
            assert ask(client, prompt.question) == answer(prompt)
            assert prompt.result in results_seen(model)[-1]
        assert "hermes-agent" in [m.id for m in client.models.list()]


def test_a_stream_comes_in_pieces(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with scripted(script(prompt)) as model, daemon(make_home(tmp_path, model)) as (client, _):
        stream = client.chat.completions.create(
            model="hermes-agent", messages=[{"role": "user", "content": prompt.question}], stream=True
        )
        chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == answer(prompt)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert len(chunks) > 3


def test_a_session_header_goes_on_with_a_stored_session(tmp_path: Path, scripted) -> None:
    first, second = PROMPTS[:2]
    headers = {"X-Hermes-Session-Id": "work-1"}
    with scripted(script(first, second)) as model:
        home = make_home(tmp_path, model)
        with daemon(home) as (client, _):
            ask(client, first.question, extra_headers=headers)
        with daemon(home) as (client, _):
            assert ask(client, second.question, extra_headers=headers) == answer(second)
            users = [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "user"]
            assert users == [first.question, second.question]
        assert "api_server" in run(home, "sessions", "list").stdout


def test_the_wrong_key_is_refused_and_the_configured_one_works(tmp_path: Path, scripted) -> None:
    prompt = power_prompt()
    with (
        scripted(script(prompt)) as model,
        daemon(make_home(tmp_path, model), API_SERVER_KEY="a-key-of-the-operator-0123456789") as (client, _),
    ):
        assert ask(client, prompt.question) == answer(prompt)
        with pytest.raises(openai.AuthenticationError):
            ask(client.with_options(api_key="wrong-key-0123456789abcdef"), prompt.question)
        assert len(model.bodies()) == 2


def test_the_page_of_proposals_opens_with_the_key(tmp_path: Path, scripted) -> None:
    with (
        scripted(script(PROMPTS[0])) as model,
        daemon(make_home(tmp_path, model)) as (client, _),
        httpx.Client(base_url=str(client.base_url.join("/")), timeout=30, follow_redirects=True) as browser,
    ):
        assert 'type="password"' in browser.get("/proposals").text
        opened = browser.post("/proposals/sign-in", data={"key": client.api_key})
        assert (opened.url.path, opened.status_code) == ("/proposals", 200)
        assert "No proposal waits." in opened.text


def test_a_command_is_refused_over_http(tmp_path: Path, scripted) -> None:
    witness = tmp_path / "witness"
    call = {"id": "c1", "name": "terminal", "arguments": f'{{"command": "touch {witness}"}}'}
    fixtures = [
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [call]}},
        {"match": {"hasToolResult": True}, "response": {"content": "I may not."}},
    ]
    with scripted(fixtures) as model, daemon(make_home(tmp_path, model)) as (client, _):
        assert ask(client, "touch it") == "I may not."
        assert "no user can be asked" in results_seen(model)[0]
    assert not witness.exists()


def test_a_term_signal_lets_the_running_turn_finish_and_ends_with_0(tmp_path: Path, scripted) -> None:
    slow = {"match": {}, "response": {"content": "one two three four five six seven eight"}, "latency": 150}
    with scripted([slow]) as model, daemon(make_home(tmp_path, model)) as (client, process):
        stream = client.chat.completions.create(
            model="hermes-agent", messages=[{"role": "user", "content": "count"}], stream=True
        )
        pieces = [next(stream)]
        os.kill(process.pid, signal.SIGTERM)
        pieces += list(stream)
        assert "".join(c.choices[0].delta.content or "" for c in pieces if c.choices).endswith("eight")
        assert process.wait(60) == 0


def test_one_home_has_one_daemon_and_a_wrong_setting_has_its_status(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        home = make_home(tmp_path, model)
        with daemon(home) as (_, process):
            second = run(home, "gateway", "run")
            assert second.returncode == 75
            assert str(process.pid) in second.stderr
        (home / "config.yaml").write_text("modle: x\n")
        broken = run(home, "gateway", "run")
        assert broken.returncode == 78
        assert re.search(r"config\.yaml:1.*`model`", broken.stderr)


def test_a_damaged_state_ends_the_daemon_with_the_status_that_restarts_nothing(tmp_path: Path, scripted) -> None:
    with scripted(script(PROMPTS[0])) as model:
        home = make_home(tmp_path, model)
        (home / "state.db").write_bytes(b"no database " * 1000)
        ended = run(home, "gateway", "run")
    assert ended.returncode == 78
    assert "state.db" in ended.stderr and (home / "state.db").read_bytes().startswith(b"no database"), ended.stderr


@pytest.mark.parametrize("hard", [1024, 4096])
def test_half_requests_without_number_keep_nobody_out_and_the_limit_of_open_files_is_raised(
    tmp_path: Path, scripted, hard: int
) -> None:
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 4096:
        pytest.skip(f"no more than {most} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), most))
    prompt = power_prompt()
    limits = ("prlimit", f"--nofile=512:{hard}")
    with contextlib.ExitStack() as servers:
        home = make_home(tmp_path, servers.enter_context(scripted(script(prompt))))
        run(home, "config", "set", "server.head_timeout_s", "600")  # so that none is closed for being slow
        client, process = servers.enter_context(daemon(home, *limits))
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        with contextlib.ExitStack() as held:
            for _ in range(1500):
                one = held.enter_context(
                    socket.create_connection((str(client.base_url.host), client.base_url.port or 0))
                )
                one.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            deadline = time.monotonic() + 120  # those over the limit are accepted, and closed at once
            while (count := len(list(Path(f"/proc/{process.pid}/fd").iterdir()))) >= 512:
                assert time.monotonic() < deadline, f"{count} open files"
                time.sleep(0.1)
            assert ask(client, prompt.question) == answer(prompt)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


def test_a_session_of_somebody_else_is_forbidden_at_every_door_and_an_unknown_one_begins(
    tmp_path: Path, scripted
) -> None:
    prompt = power_prompt()
    with scripted(script(prompt)) as model:
        home = make_home(tmp_path, model)
        run(home, "-z", prompt.question)
        theirs = json.loads(run(home, "sessions", "list", "--json").stdout)[0]["id"]
        before = run(home, "sessions", "show", theirs).stdout
        with daemon(home) as (client, _):
            refused = [
                forbidden(ask, client, words, stream=stream, extra_headers=header)
                for header in ({"X-Hermes-Session-Id": theirs}, {"X-Hermes-Session-Id": theirs, "Idempotency-Key": "k"})
                for words in (prompt.question, "/undo", "/compress", "/plugins")
                for stream in (False, True)
            ]
            respond = functools.partial(client.responses.create, model="hermes-agent")
            refused += [
                forbidden(respond, input=prompt.question, extra_headers={"X-Hermes-Session-Id": theirs}),
                forbidden(respond, input=prompt.question, previous_response_id=f"resp_{'0' * 24}_{theirs}"),
                forbidden(respond, input="/undo", previous_response_id=f"resp_{'0' * 24}_{theirs}"),
            ]
            assert ask(client, prompt.question, extra_headers={"X-Hermes-Session-Id": "of-nobody"}) == answer(prompt)
            assert "undone" not in ask(client, "/plugins", extra_headers={"X-Hermes-Session-Id": "of-nobody-either"})
        assert run(home, "sessions", "show", theirs).stdout == before
    assert set(refused) == {(403, "session_forbidden")}


def forbidden(question: Callable[..., object], *given: object, **named: object) -> tuple[int, str | None]:
    """Return how a question is refused."""
    with pytest.raises(openai.PermissionDeniedError) as caught:
        question(*given, **named)
    return caught.value.status_code, caught.value.code
