"""What a turn costs does not depend on how much was said before: counted in calls, without a clock."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import cast

import pytest

from hermes_agent.agent import ChosenModel
from hermes_agent.contracts.model_client import ModelDelta, ModelRequest
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.core.messages import Message
from hermes_agent.models import providers
from hermes_agent.models.client import HttpModelClient
from hermes_agent.models.providers import ModelEndpoint, provider_from_profile
from hermes_agent.testing.scripted_model import ScriptedModel, call, served
from unit.agent.scripted import ScriptedModel as ScriptedClient
from unit.agent.test_turn import Bench, events_of

OURS = str(Path(providers.__file__).parent.parent)
PACKAGES = ("agent", "core", "models", "tools")


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count what the functions of the packages on a turn's way do in this thread: their calls, and those they make."""
    counted: Counter[str] = Counter()

    def note(frame: FrameType, event: str, function: object) -> None:
        path = frame.f_code.co_filename
        if event in ("call", "c_call") and path.startswith(OURS) and path[len(OURS) + 1 :].startswith(PACKAGES):
            counted[f"{path[len(OURS) + 1 :]}:{frame.f_code.co_name} {event} {function or ''}".split(" at 0x")[0]] += 1

    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("reopened", [False, True], ids=["kept open", "opened for each turn"])
@pytest.mark.parametrize("laden", [False, True], ids=["plain", "with injected context and cache marks"])
async def test_a_late_turn_does_as_much_as_an_early_one(tmp_path: Path, laden: bool, reopened: bool) -> None:
    turns, name = 24, "claude-of-a-router" if laden else "stub"
    answers = [answer for _ in range(turns) for answer in (call("echo", n=1), "done")]
    counts: list[Counter[str]] = []
    bench = Bench(tmp_path, [])
    if laden:
        bench.hooks.add("pre_llm_call", lambda **kwargs: {"context": "It rains."}, "weather")

    async def scenario(base_url: str) -> None:
        profile = ProviderProfile("custom", needs_key=False, marks_cache=laden)
        client = HttpModelClient(ModelEndpoint(provider_from_profile(profile), base_url))
        bench.agent.choose_model = lambda wish: ChosenModel(client, name)
        talk = await bench.open("s")
        for number in range(turns):
            with counting() as counted:
                await events_of(talk, f"message {number}")
                if reopened:  # as for each request over HTTP
                    await talk.close("session_boundary")
                    talk = await bench.open("s")
            counts.append(counted)
        await client.aclose()

    with served(ScriptedModel(*answers)) as base_url:
        await bench.run(scenario(base_url))
    early, late = counts[4], counts[-1]
    # `pre_llm_call` is promised the whole conversation; each text that was injected is looked up
    allowed = (
        ("core/messages.py", "agent/transcript_writer.py:messages_to_send c_call <built-in method get") if laden else ()
    )
    grown = {what: (early[what], n) for what, n in late.items() if n > 1.2 * early[what] + 12}
    more = {what: n for what, n in grown.items() if not what.startswith(allowed)}
    assert not more, f"early and late, after four times as many messages: {more}"
    assert sum(late.values()) > 300, "the turn was not looked at"


async def test_no_cycle_keeps_the_messages_of_a_request(tmp_path: Path) -> None:
    """Such an object lives until a garbage collection, with a list of the whole history."""
    bench = Bench(tmp_path, [])

    async def scenario(base_url: str) -> None:
        client = HttpModelClient(
            ModelEndpoint(provider_from_profile(ProviderProfile("custom", needs_key=False)), base_url)
        )
        bench.agent.choose_model = lambda wish: ChosenModel(client, "stub")
        talk = await bench.open("s")
        gc.collect()
        gc.disable()
        try:
            await events_of(talk, "a message")
            kept = [found for found in gc.get_objects() if isinstance(found, ModelRequest)]
        finally:
            gc.enable()
        await client.aclose()
        assert not kept

    with served(ScriptedModel(call("echo", n=1), "done")) as base_url:
        await bench.run(scenario(base_url))


async def test_a_client_of_a_plugin_may_change_the_messages_of_its_request(tmp_path: Path) -> None:
    class Changing(ScriptedClient):
        """Changes the list that it is given; the next request must not have the changes."""

        def __init__(self) -> None:
            super().__init__(["one", "two", "three"])
            self.given: list[list[str]] = []

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
            messages = cast("list[Message]", request.messages)
            self.given.append([message.text for message in messages[1:]])
            messages[1] = Message("user", "something else")
            async for item in super().stream(replace(request, messages=())):  # which keeps its request
                yield item

    bench, client = Bench(tmp_path, []), Changing()
    bench.agent.choose_model = lambda wish: ChosenModel(client, "scripted")

    async def work() -> None:
        talk = await bench.open("s")
        for text in ("a", "b", "c"):
            await events_of(talk, text)

    await bench.run(work())
    assert client.given == [["a"], ["a", "one", "b"], ["a", "one", "b", "two", "c"]]
