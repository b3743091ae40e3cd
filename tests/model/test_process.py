"""The real runtime in its process: refusals, crashes, cancellation, idle unloading."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest, TextPart
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Message
from local_model import LocalModelClient, LocalModelServer, LocalServerSettings, check_availability, services
from waiting import until, wait_for_end

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model"), pytest.mark.timeout(900)]

LONG = ModelRequest("", [Message("user", "Count from one to two hundred in words.")])
SHORT = ModelRequest("", [Message("user", "Say hello.")], max_tokens=20)


def settings(**more: object) -> LocalServerSettings:
    """Settings with the smallest weights that are there."""
    there = next(
        (a for name in ("smollm2-135m", "qwen2.5-coder-0.5b", "") if (a := check_availability({}, name)).weights),
        None,
    )
    if there is None or not there.runtime:
        pytest.skip("weights and runtime are needed: hermes model pull, make .venv/.local")
    return LocalServerSettings(there.path, there.model, threads=2, **more)  # type: ignore[arg-type]


async def answer(client: LocalModelClient, request: ModelRequest) -> ModelAnswer:
    async for delta in client.stream(request):
        if isinstance(delta, ModelAnswer):
            return delta
    raise AssertionError("the stream has no end")


async def test_a_file_that_is_no_model_is_refused_with_the_runtimes_own_words(tmp_path: Path) -> None:
    settings()
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"not a model" * 1000)

    async def main() -> ModelError:
        server = LocalModelServer(LocalServerSettings(wrong, "wrong"))
        with pytest.raises(ModelError) as failed:
            await server.ensure_started()
        await server.aclose()
        return failed.value

    error = await main()
    assert str(wrong) in error.message
    assert "failed to load model" in error.hint


async def test_the_server_answers_nobody_without_the_key_and_on_loopback_only() -> None:
    import httpx

    server = LocalModelServer(settings())
    url, key = await server.ensure_started()
    assert url.startswith("http://127.0.0.1:")
    async with httpx.AsyncClient(trust_env=False) as client:
        for path in ("/v1/models", "/slots", "/props", "/metrics"):
            assert (await client.get(url + path)).status_code == 401
        known = await client.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})
        assert known.status_code == 200
    await server.aclose()


async def test_a_killed_process_ends_one_answer_and_the_next_question_starts_another() -> None:
    given = settings()
    server = LocalModelServer(given)
    client = LocalModelClient(services(), given, server=server)
    with pytest.raises(ModelError, match="SIGKILL") as failed:
        async for delta in client.stream(LONG):
            if isinstance(delta, TextPart) and server.pid is not None:
                os.kill(server.pid, signal.SIGKILL)
    assert failed.value.kind == "cut_off"
    assert (await answer(client, SHORT)).message.text
    await client.aclose()


async def test_an_answer_that_is_broken_off_leaves_the_model_free_for_the_next() -> None:
    client = LocalModelClient(services(), given := settings(), server=(server := LocalModelServer(given)))
    async with aclosing(client.stream(LONG)) as stream:
        async for _ in stream:
            break
    pid = server.pid
    assert (await answer(client, SHORT)).message.text
    assert server.pid == pid
    await client.aclose()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_prompt_that_is_broken_off_while_it_is_read_is_read_no_further() -> None:
    client = LocalModelClient(services(), given := settings(), server=(server := LocalModelServer(given)))
    await answer(client, SHORT)
    pid = server.pid
    assert pid is not None
    began = cpu_seconds(pid)
    short = ModelRequest("", [Message("user", "The owl sleeps. " * 25 + "Say hello.")], max_tokens=1)
    tokens = (await answer(client, short)).usage.input_tokens
    for_a_token = (cpu_seconds(pid) - began) / tokens
    words = " ".join(f"item{n}" for n in range(1000))  # three tokens or more each

    began = cpu_seconds(pid)
    reading = asyncio.create_task(answer(client, ModelRequest("", [Message("user", words)], max_tokens=1)))
    await asyncio.to_thread(until, lambda: cpu_seconds(pid) > began + 0.1)
    reading.cancel()
    await asyncio.wait((reading,))
    assert (await answer(client, SHORT)).message.text

    assert reading.cancelled() and server.pid == pid
    assert cpu_seconds(pid) - began < for_a_token * 3000 / 2
    await client.aclose()


async def test_two_questions_at_once_are_both_answered() -> None:
    client = LocalModelClient(services(), settings())
    both = await asyncio.gather(answer(client, SHORT), answer(client, SHORT))
    assert all(a.message.text for a in both)
    await client.aclose()


async def test_a_conversation_that_the_runtime_finds_too_long_is_called_so() -> None:
    async def main() -> ModelError:
        client = LocalModelClient(services(), settings(context_length=512))
        digits = " ".join(str(n) for n in range(10)) * 25  # a token a character, where three are reckoned with
        with pytest.raises(ModelError) as failed:
            await answer(client, ModelRequest("", [Message("user", digits)]))
        await client.aclose()
        return failed.value

    assert (await main()).kind == "context_too_long"


async def test_the_memory_is_given_back_when_nobody_asks_and_what_was_read_is_restored(tmp_path: Path) -> None:
    given = settings(idle_s=0.5, state_dir=tmp_path)
    client = LocalModelClient(services(), given, server=(server := LocalModelServer(given)))
    question = Message("user", "The owl sleeps. " * 60 + "Say hello.")
    first = await answer(client, ModelRequest("", [question], max_tokens=20))
    if (pid := server.pid) is not None:
        await asyncio.to_thread(wait_for_end, pid)
    assert [path.suffix for path in tmp_path.iterdir()] == [".state"]
    again = await answer(client, ModelRequest("", [question, first.message, Message("user", "Again.")], max_tokens=20))
    assert again.message.text
    assert again.usage.cached_tokens > 200
    await client.aclose()
