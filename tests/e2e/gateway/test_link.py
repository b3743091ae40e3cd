"""The life of an adapter: connected, lost, connected again; one that hangs or raises disturbs nobody."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from typing import Any

from hermes_agent.app.control_operations import PluginStatus
from hermes_agent.gateway.adapter_connection import ConnectionPauses
from hermes_agent.testing import ScriptedModel
from hermes_agent.testing.chat import PLATFORM, MemoryAdapter, chat_host, memory_platform


class Script:
    """What each connect comes to, in order; then it works."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.reconnects: list[bool] = []
        self.made: list[Any] = []
        self.disconnects = 0

    def __call__(self, config: Any) -> Any:
        script = self

        class Adapter(MemoryAdapter):
            async def connect(self, *, is_reconnect: bool = False) -> bool:
                script.reconnects.append(is_reconnect)
                step = script.steps.pop(0) if script.steps else True
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, tuple):
                    self._set_fatal_error(*step[:2], retryable=step[2])
                    return False
                if step == "hang":
                    await asyncio.Event().wait()
                return await super().connect() if step else False

            async def disconnect(self) -> None:
                script.disconnects += 1
                await super().disconnect()

            async def give_up(self, retryable: bool) -> None:
                self._set_fatal_error("lost", "the line was cut", retryable=retryable)
                await self._notify_fatal_error()

        adapter = Adapter(config)
        self.made.append(adapter)
        return adapter


QUICK = ConnectionPauses(first=0.001, longest=0.002, paused=0.003, breaks_after=3)


def test_a_platform_that_fails_is_connected_again_and_messages_wait_for_it() -> None:
    script = Script(False, OSError("no route"), ("not_yet", "starting", True))
    with chat_host(model=["hello"], platform=memory_platform(script), pauses=QUICK) as chat:
        assert len(script.made) == 4
        assert script.disconnects == 3
        assert chat.ask("hi") == "hello"


def test_one_that_gives_up_is_made_anew_and_the_answer_arrives_there() -> None:
    script = Script()
    gate = threading.Event()
    model = ScriptedModel(lambda request: (gate.wait(60), "late")[1])
    with chat_host(model=model, platform=memory_platform(script), pauses=QUICK) as chat:
        chat.write("hi")
        first = chat.adapter
        chat.host.host.bridge.wait_plugin(first.give_up(True))
        gate.set()
        chat.until("connected", times=2)
        assert chat.answers(1) == ["late"]
        assert (first.sent, script.reconnects) == ([], [False, True])


def test_what_trying_again_does_not_cure_waits_for_a_reload() -> None:
    script = Script()
    with chat_host(model=["back"], platform=memory_platform(script), pauses=QUICK) as chat:
        chat.host.host.bridge.wait_plugin(chat.adapter.give_up(False))
        chat.until("failed")
        (state,) = chat.gateway.states()
        assert (state["state"], state["reason"]) == ("failed", "the line was cut")
        assert chat.gateway.counts() == {"platforms": 0, "platforms_down": 1, "chat_turns": 0}

        assert chat.host._run(chat.gateway.reload()) == {PLATFORM: "connected"}
        chat.until("connected", times=2)
        assert chat.ask("hi") == "back"


def test_a_reload_drops_what_is_not_configured_any_more() -> None:
    with chat_host() as chat:
        host = chat.host.host
        host.config = host.config._replace(values={**host.config.values, "platforms": {PLATFORM: {"enabled": False}}})
        adapter = chat.adapter
        assert chat.host._run(chat.gateway.reload()) == {PLATFORM: "disconnected"}
        assert (chat.gateway.states(), adapter.is_connected) == ([], False)


def test_a_reload_says_which_platforms_reconnected_and_which_could_not() -> None:
    script = Script()
    with chat_host(platform=memory_platform(script), pauses=QUICK) as chat:
        door = PluginStatus(chat.host.host, chat.gateway.reload)

        def reloaded(**changes: Any) -> list[dict[str, str]]:
            file = chat.host.home / "config.yaml"
            config = json.loads(file.read_text())
            config.setdefault("platforms", {}).setdefault(PLATFORM, {}).update(enabled=True, **changes)
            file.write_text(json.dumps(config))
            done: list[dict[str, str]] = chat.host._run(door.reload(None))
            return [one for one in done if one["key"].startswith("platform ")]

        assert reloaded(reply_to_mode="all") == [
            {"key": f"platform {PLATFORM}", "outcome": "reconnected", "reason": ""}
        ]
        assert reloaded(reply_to_mode="all") == []  # nothing changed
        script.steps.append(("refused", "wrong password", False))
        (failed,) = reloaded(reply_to_mode="off")
        assert failed["outcome"] == "not connected: wrong password"


def test_the_pauses_grow_and_the_circuit_opens() -> None:
    pauses = ConnectionPauses(first=2, longest=300, paused=900, breaks_after=10)
    seconds = [pauses.after(failures) for failures in (1, 2, 3, 9, 10, 50)]

    assert 1.6 <= seconds[0] <= 2.4
    assert 3.2 <= seconds[1] <= 4.8
    assert 240 <= seconds[3] <= 360
    assert seconds[4:] == [900, 900]
    assert dataclasses.asdict(pauses)["breaks_after"] == 10


def test_an_adapter_that_cannot_be_made_or_hangs_while_it_ends_disturbs_nobody() -> None:
    def broken(ctx: Any) -> None:
        def factory(config: Any) -> Any:
            raise RuntimeError("no adapter")

        ctx.register_platform("brokenchat", "Broken", factory, lambda: True)

    def hanging(ctx: Any) -> None:
        class Hangs(MemoryAdapter):
            async def connect(self, *, is_reconnect: bool = False) -> bool:
                await asyncio.Event().wait()
                return True

        ctx.register_platform("hangingchat", "Hangs", Hangs, lambda: True)

    with chat_host(broken, hanging, model=["works"]) as chat:
        assert chat.ask("hi") == "works"
        states = {one["name"]: one["state"] for one in chat.gateway.states()}

    assert states == {"memorychat": "connected", "brokenchat": "failed", "hangingchat": "connecting"}
