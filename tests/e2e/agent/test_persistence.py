"""What a turn does when the model fails, over real HTTP: a whole host, its config, and servers that fail on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.agent.conversation import Conversation
from hermes_agent.core.errors import ModelError
from hermes_agent.core.messages import Notice, TextDelta, TurnEvent, TurnFinished
from hermes_agent.host import Host
from hermes_agent.policy import NoApprover
from peers import install
from peers.faulty import FaultyModel, faulty_model
from peers.raw import RawServer, raw_server

Build = Callable[..., Host]


@pytest.fixture(scope="module")
def faulty() -> Iterator[FaultyModel]:
    try:
        install.llmock()
    except install.NotInstalled as exc:
        pytest.skip(f"a test server could not be installed: {exc}")
    with faulty_model() as model:
        yield model


@pytest.fixture
def build(tmp_path: Path, without_host: None) -> Iterator[Build]:
    """Build a host over a config."""
    hosts: list[Host] = []

    def make(**config: Any) -> Host:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(json.dumps(config))
        hosts.append(Host.build(home))
        return hosts[-1]

    yield make
    for host in hosts:
        host.bridge.close()


def at(base_url: str, **more: Any) -> dict[str, Any]:
    return {"provider": "custom", "base_url": base_url, "default": "m-1", **more}


async def turn(host: Host, text: str = "hello", talk: Conversation | None = None) -> list[TurnEvent]:
    talk = talk or await host.agent.open(None, platform="cli", approver=NoApprover("in a test"))
    return [event async for event in talk.turn(text)]


async def run(host: Host, work: Coroutine[Any, Any, Any]) -> Any:
    async def main() -> Any:
        try:
            return await asyncio.wait_for(work, 30)
        finally:
            await host.agent.aclose()
            await host.clients.aclose()

    return await main()


def text_of(events: list[TurnEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta))


def notices(events: list[TurnEvent]) -> list[str]:
    return [e.text for e in events if isinstance(e, Notice)]


SAYS = "It works, and says so in several words."
REPLY = {"type": "reply", "text": SAYS}


@pytest.mark.parametrize(
    "fault",
    [
        {"type": "fail", "status": 503, "retry_after": 0},
        {"type": "fail", "status": 429, "retry_after": 0},
        {"type": "stream_fault", "kind": "disconnect", "after_chunks": 0},
        {"type": "stream_fault", "kind": "disconnect", "after_chunks": 3},
        {"type": "stream_fault", "kind": "malformed", "after_chunks": 2},
        {"type": "stream_fault", "kind": "truncate", "after_chunks": 2},
    ],
)
async def test_a_passing_failure_is_asked_again_and_every_failure_is_told(
    faulty: FaultyModel, build: Build, fault: dict[str, Any]
) -> None:
    faulty.script(fault, REPLY, REPLY)  # a stream goes wrong in the middle of the first
    host = build(model=at(faulty.base_url))
    told: list[dict[str, Any]] = []
    host.hooks.add("api_request_error", lambda **kw: told.append(kw), "observer")

    events = await run(host, turn(host))

    assert text_of(events) == SAYS
    ((count, most, retryable),) = [(t["retry_count"], t["max_retries"], t["retryable"]) for t in told]
    assert (count, most, retryable) == (0, 3, True)


async def test_retries_end(faulty: FaultyModel, build: Build) -> None:
    faulty.script({"type": "fail", "status": 500, "retry_after": 0, "times": 9})
    host = build(model=at(faulty.base_url), agent={"api_max_retries": 2})
    told: list[bool] = []
    host.hooks.add("api_request_error", lambda **kw: told.append(kw["retryable"]), "observer")

    with pytest.raises(ModelError) as caught:
        await run(host, turn(host))

    assert (caught.value.kind, told) == ("overloaded", [True, True, False])
    assert len(faulty.requests()) == 3


@pytest.mark.parametrize("status", [400, 401])
async def test_what_would_fail_again_is_not_asked_again(faulty: FaultyModel, build: Build, status: int) -> None:
    faulty.script({"type": "fail", "status": status, "message": "no"})
    with pytest.raises(ModelError):
        await run(host := build(model=at(faulty.base_url)), turn(host))
    assert len(faulty.requests()) == 1


def chunk(text: str, **more: Any) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}, **more}]})}\n\n".encode()


FIRST = "The way home is long, and "
END = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "goes_on",
    ["nobody walks it alone.", FIRST + "nobody walks it alone.", "is long, and nobody walks it alone."],
    ids=["goes on", "begins anew", "repeats the last words"],
)
async def test_an_answer_that_breaks_off_is_gone_on_with_and_each_word_is_read_once(build: Build, goes_on: str) -> None:
    broken, whole = [chunk("The way home "), chunk("is long, and ")], [chunk(goes_on, finish_reason="stop"), END]

    async def work() -> tuple[list[TurnEvent], Host, list[dict[str, Any]]]:
        async with sequence(broken, whole) as server:
            host = build(model=at(server.base_url))
            try:
                talk = await host.agent.open("s", platform="cli", approver=NoApprover("in a test"))
                events = await turn(host, talk=talk)
                return events, talk.history, bodies(server)
            finally:
                await host.agent.aclose()
                await host.clients.aclose()

    events, history, asked = await work()
    whole_text = FIRST + "nobody walks it alone."
    assert text_of(events) == whole_text == events[-1].text
    assert [m.content for m in history] == ["hello", whole_text]
    assert asked[1]["messages"][: len(asked[0]["messages"])] == asked[0]["messages"]
    said, wish = asked[1]["messages"][len(asked[0]["messages"]) :]
    assert said == {"role": "assistant", "content": FIRST}
    assert wish["role"] == "user" and "repeat nothing" in wish["content"]


def bodies(server: RawServer) -> list[dict[str, Any]]:
    return [json.loads(r.partition(b"\r\n\r\n")[2]) for r in server.requests]


def sequence(*answers: list[bytes]) -> Any:
    """Answer request N with stream N; all but the last are cut."""
    return raw_server(*answers[-1], before=answers[:-1])


async def test_an_empty_answer_is_asked_again(build: Build) -> None:
    nothing = [chunk("", finish_reason="stop"), END]

    async def work() -> list[TurnEvent]:
        async with sequence(nothing, [chunk("Here.", finish_reason="stop"), END]) as server:
            host = build(model=at(server.base_url))
            try:
                return await turn(host)
            finally:
                await host.agent.aclose()
                await host.clients.aclose()

    assert text_of(await work()) == "Here."


async def test_arguments_that_are_not_quite_json_are_mended(build: Build) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "todo_nothing", "arguments": "{'a': True,}"}}
    calls = f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [call]}, 'finish_reason': 'tool_calls'}]})}\n\n"

    async def work() -> list[dict[str, Any]]:
        async with sequence([calls.encode(), END], [chunk("Done.", finish_reason="stop"), END]) as server:
            host = build(model=at(server.base_url))
            try:
                await turn(host)
                return bodies(server)
            finally:
                await host.agent.aclose()
                await host.clients.aclose()

    second = (await work())[1]["messages"]
    assert second[-2]["tool_calls"][0]["function"]["arguments"] == '{"a": true}'
    assert "Unknown tool" in second[-1]["content"]


@pytest.mark.parametrize(("status", "rests"), [(402, True), (429, True), (401, True), (404, False)])
async def test_the_next_provider_answers_and_the_first_rests(
    faulty: FaultyModel, build: Build, status: int, rests: bool
) -> None:
    faulty.script(
        {"type": "fail", "status": status, "message": "model m-1 not found"}, {"type": "reply", "text": "one"}
    )
    with faulty_model() as other:
        other.script({"type": "reply", "text": "two"}, {"type": "reply", "text": "three"})
        host = build(model=at(faulty.base_url), fallback_providers=["nobody", at(other.base_url, model="m-2")])

        async def work() -> tuple[list[TurnEvent], list[TurnEvent]]:
            return await turn(host), await turn(host)

        first, second = await run(host, work())
        asked = [r["model"] for r in other.requests()]
    assert (text_of(first), asked[0]) == ("two", "m-2")
    assert notices(first)[0].endswith(
        " Fallback: from model m-1 of custom (127.0.0.1) to model m-2 of custom (127.0.0.1)."
    )
    # who was told to stay away is left alone for a while, also by other conversations
    assert text_of(second) == ("three" if rests else "one")


async def test_further_keys_of_a_provider_take_over_and_it_is_said_which(
    faulty: FaultyModel, build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replies = ({"type": "reply", "text": text} for text in ("with the other key", "once more"))
    faulty.script({"type": "fail", "status": 429, "retry_after": 60}, *replies)
    (tmp_path / "home").mkdir()
    env = tmp_path / "home" / ".env"
    env.write_text("BOX_API_KEY=key-one\nBOX_TWO=key-two\n")
    env.chmod(0o600)
    host = build(
        model={"provider": "box", "default": "m-1"},
        providers={"box": {"base_url": faulty.base_url, "profiles": {"two": "BOX_TWO"}}},
        credential_pool_strategies={"box": "fill_first"},
    )
    selection = host.select_model()
    assert [s.endpoint.key_name for s in (selection, *selection.with_other_keys)] == ["BOX_API_KEY", "BOX_TWO"]

    async def work() -> tuple[list[TurnEvent], list[TurnEvent]]:
        talk = await host.agent.open(None, platform="cli", approver=NoApprover("in a test"))
        return [e async for e in talk.turn("hello")], [e async for e in talk.turn("again")]

    first, second = await run(host, work())
    assert (text_of(first), text_of(second)) == ("with the other key", "once more")
    rotated = "Credential rotated: from BOX_API_KEY to BOX_TWO of box; the model stays m-1."
    assert "limits how often model 'm-1' may be asked" in notices(first)[0]
    assert notices(first)[0].endswith(rotated)
    assert notices(second) == []  # it is left alone, and the user knows
    logged = [r.getMessage() for r in caplog.records if "rotated" in r.getMessage()]
    assert logged and not any("key-one" in text or "key-two" in text for text in [*logged, *notices(first)])
    assert not any("Fallback" in r.getMessage() for r in caplog.records)


def test_keys_are_used_in_turns(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOX_API_KEY", "BOX_TWO", "BOX_THREE"):
        monkeypatch.setenv(name, f"value of {name}".replace(" ", "-"))
    host = build(
        model={"provider": "box", "default": "m-1"},
        providers={"box": {"base_url": "http://127.0.0.1:9/v1", "profiles": {"2": "BOX_TWO", "3": "BOX_THREE"}}},
        credential_pool_strategies={"box": "round_robin"},
    )
    first = [host.select_model().endpoint.key_name for _ in range(6)]
    assert sorted(first[:3]) == ["BOX_API_KEY", "BOX_THREE", "BOX_TWO"] and first[:3] == first[3:]


async def test_an_interrupt_ends_the_wait_before_the_next_attempt(faulty: FaultyModel, build: Build) -> None:
    faulty.script({"type": "fail", "status": 429, "retry_after": 100})
    host = build(model=at(faulty.base_url))

    async def work() -> list[TurnEvent]:
        talk = await host.agent.open(None, platform="cli", approver=NoApprover("in a test"))
        events: list[TurnEvent] = []
        async for event in talk.turn("hello"):
            events.append(event)
            if isinstance(event, Notice):
                assert "Asking again in 100 seconds." in event.text
                talk.interrupt()
        return events

    events = await run(host, work())  # within the test's limit, not in 100 seconds
    assert isinstance(events[-1], TurnFinished) and events[-1].reason == "interrupted"
    assert len(faulty.requests()) == 1


async def test_a_silent_stream_is_given_up_and_asked_again(faulty: FaultyModel, build: Build) -> None:
    faulty.script({"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 30}, REPLY, REPLY)
    host = build(
        model={"provider": "box", "default": "m-1"},
        providers={"box": {"base_url": faulty.base_url, "stale_timeout_seconds": 1}},
    )
    assert text_of(await run(host, turn(host))) == SAYS


async def test_a_server_that_says_nothing_at_all_is_given_up(build: Build) -> None:
    async def work() -> str:
        async def takes_and_is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(takes_and_is_silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            host = build(
                model={"provider": "box", "default": "m-1"},
                providers={"box": {"base_url": f"http://127.0.0.1:{port}/v1", "first_byte_timeout_seconds": 1}},
                agent={"api_max_retries": 0},
            )
            with pytest.raises(ModelError) as caught:
                await turn(host)
            await host.agent.aclose()
            await host.clients.aclose()
            return str(caught.value)

    assert "1 second" in await work()


@pytest.mark.parametrize("effort", ["", "high"])
async def test_how_long_the_model_may_think_is_said_in_its_request(build: Build, effort: str) -> None:
    async def work() -> bytes:
        async with raw_server(b'data: {"choices":[{"delta":{"content":"Yes."},"finish_reason":"stop"}]}\n\n') as server:
            host = build(model=at(server.base_url), agent={"reasoning_effort": effort})
            assert text_of(await turn(host)) == "Yes."
            await host.agent.aclose()
            await host.clients.aclose()
            return server.requests[0]

    sent = json.loads((await work()).partition(b"\r\n\r\n")[2])
    assert sent.get("reasoning_effort", "") == effort


async def test_a_model_that_knows_no_effort_is_asked_without_from_then_on(faulty: FaultyModel, build: Build) -> None:
    refusal = {"type": "fail", "status": 400, "message": "Unsupported parameter: 'reasoning_effort'"}
    faulty.script(refusal, REPLY, REPLY)
    host = build(model=at(faulty.base_url), agent={"reasoning_effort": "high"})

    async def work() -> str:
        talk = await host.agent.open(None, platform="cli", approver=NoApprover("in a test"))
        return text_of(await turn(host, talk=talk)) + text_of(await turn(host, talk=talk))

    assert await run(host, work()) == SAYS * 2
    assert len(faulty.requests()) == 3


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig"}


def claude(*blocks: dict[str, Any], stop: str) -> list[bytes]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"model": "claude-x"}}]
    events += [{"type": "content_block_start", "index": i, "content_block": b} for i, b in enumerate(blocks)]
    events += [{"type": "message_delta", "delta": {"stop_reason": stop}}, {"type": "message_stop"}]
    return [f"data: {json.dumps(event)}\n\n".encode() for event in events]


async def test_what_claude_thought_goes_back_to_it_also_after_a_restart(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-claude")
    call = {"type": "tool_use", "id": "t1", "name": "nobody_s_tool", "input": {}}
    thinks, answers = claude(THOUGHT, call, stop="tool_use"), claude({"type": "text", "text": "Done."}, stop="end_turn")

    async def work() -> list[dict[str, Any]]:
        async with sequence(thinks, answers, answers) as server:
            for said in ("one", "two"):  # each by a host of its own, as after a restart
                host = build(model={"provider": "anthropic", "default": "claude-x", "base_url": server.base_url})
                try:
                    talk = await host.agent.open("s", platform="cli", approver=NoApprover("in a test"))
                    assert text_of(await turn(host, said, talk)) == "Done."
                finally:
                    await host.agent.aclose()
                    await host.clients.aclose()
            return bodies(server)

    first, second, third = await asyncio.wait_for(work(), 30)
    for later in (second, third):
        assert later["system"] == first["system"] and later["tools"] == first["tools"]
        assert later["messages"][1] == {"role": "assistant", "content": [THOUGHT, call]}
        assert later["messages"][2]["content"][0]["tool_use_id"] == "t1"


# -- side calls ------------------------------------------------------------------------------------------------------


async def until(found: Callable[[], Any]) -> Any:
    """Wait for what a thread beside brings."""
    for _ in range(1000):
        if value := found():
            return value
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come")


async def test_neither_a_turn_nor_the_end_of_the_process_waits_for_a_title(build: Build) -> None:
    async def work() -> list[TurnEvent]:
        replies = [chunk("It is 4.", finish_reason="stop"), END]
        async with raw_server(hold=True, before=[replies]) as server:  # the title never comes
            host = build(model=at(server.base_url), auxiliary={"title_generation": {"enabled": True}})
            try:
                talk = await host.agent.open("s", platform="cli", approver=NoApprover("in a test"))
                return await turn(host, "2+2?", talk)
            finally:
                await until(lambda: len(server.requests) == 2)
                await host.aclose()

    assert text_of(await asyncio.wait_for(work(), 30)) == "It is 4."


async def test_a_session_gets_a_title_after_its_first_turn(build: Build) -> None:
    replies = [
        [chunk("It is 4.", finish_reason="stop"), END],
        [chunk('"Adding two numbers".', finish_reason="stop"), END],
    ]

    async def work() -> tuple[str, str, dict[str, Any]]:
        async with sequence(*replies) as server:
            titled = {"title_generation": {"enabled": True, "model": "small"}}
            host = build(model=at(server.base_url), auxiliary=titled)
            try:
                talk = await host.agent.open("s", platform="cli", approver=NoApprover("in a test"))
                await turn(host, "2+2?", talk)
                before = await host.agent.call_transcript("title", "s")
                spent = await until(
                    lambda: "title_generation" in host.ledger.totals_by("cause") and host.ledger.totals_by("cause")
                )
                for _ in range(1000):
                    if (title := await host.agent.call_transcript("title", "s")) != before:
                        break
                    await asyncio.sleep(0.01)
                return before, title, {"spent": spent, "asked": bodies(server)}
            finally:
                await host.agent.aclose()
                await host.clients.aclose()

    _, title, seen = await asyncio.wait_for(work(), 30)
    assert title == "Adding two numbers"
    assert seen["asked"][1]["model"] == "small" and "2+2?" in seen["asked"][1]["messages"][-1]["content"]
    assert set(seen["spent"]) == {"turn", "title_generation"}


async def test_every_call_of_a_plugin_is_on_record_and_falls_back_by_its_task(
    build: Build, faulty: FaultyModel
) -> None:
    faulty.script({"type": "fail", "status": 402, "times": 2})
    from hermes_agent.plugins.llm_client import AuxiliaryCall, call_auxiliary_async

    with faulty_model() as other:
        other.script({"type": "reply", "text": "from the other"})
        chain = [at(other.base_url, model="m-2")]
        host = build(model=at(faulty.base_url), auxiliary={"approval": {"fallback_chain": chain}})

        async def work() -> tuple[Any, dict[str, Any]]:
            call = AuxiliaryCall("approval", [{"role": "user", "content": "hi"}], {})
            answer = await call_auxiliary_async(host, call)
            return answer, await until(lambda: host.ledger.totals_by("cause"))

        answer, spent = await run(host, work())
    assert answer.choices[0].message.content == "from the other"
    assert list(spent) == ["approval"] and spent["approval"].requests == 1
