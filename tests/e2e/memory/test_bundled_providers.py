"""The two memories that come with the agent: through turns of a real host, and in the corners."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from contracts.memory_service import MemoryService
from hermes_agent.memory.manager import MemoryManager
from hermes_agent.policy import NoApprover
from hermes_agent.testing import PluginHost, call, plugin_host


@pytest.fixture
def service() -> Iterator[MemoryService]:
    made = MemoryService()
    yield made
    made.close()


def settle(host: PluginHost) -> None:
    assert host._run(host.host.service(MemoryManager)._background.drain(20))


def as_person(host: PluginHost, principal: str, text: str) -> None:
    async def work() -> None:
        talk = await host.host.agent.open(None, platform="pond", approver=NoApprover("a test"), principal=principal)
        async for _ in talk.turn(text):
            pass
        await talk.close("shutdown")

    host._run(work())
    settle(host)


NOTEBOOK = {"memory": {"provider": "notebook"}}


def http(service: MemoryService, key: str = "k-123") -> dict[str, Any]:
    return {
        "config": {"memory": {"provider": "http-memory"}},
        "env": {"HTTP_MEMORY_URL": service.url, "HTTP_MEMORY_KEY": key},
    }


def test_the_notebook_recalls_in_a_later_session_what_was_said_in_an_earlier_one() -> None:
    with plugin_host(config=NOTEBOOK, model=["Noted.", "Hm.", "An otter."]) as host:
        host.ask("My pet otter is called Ottilie.")
        settle(host)
        host.ask("Which otter?")
        assert "memory-context" not in str(host.model.messages[-1])  # it is in front of the model anyway
        settle(host)
        host.new_session()
        host.ask("What is the name of my otter?")
        assert "Ottilie" in host.model.messages[-1]["content"]
        assert "notebook_search" in host.model.tools
        assert oct((host.home / "notebook.db").stat().st_mode & 0o777) == "0o600"


def test_the_notebook_keeps_people_apart() -> None:
    with plugin_host(config=NOTEBOOK, model=["a", "b", "c", "d"]) as host:
        as_person(host, "local", "My otter is called Ottilie.")
        as_person(host, "pond:bob", "My otter is called Bert.")
        as_person(host, "pond:bob", "What is my otter called?")
        assert "Bert" in host.model.messages[-1]["content"] and "Ottilie" not in str(host.model.messages)
        as_person(host, "local", "What is my otter called?")
        assert "Ottilie" in host.model.messages[-1]["content"] and "Bert" not in str(host.model.messages)


def test_the_notebook_s_tools_find_write_and_forget() -> None:
    script = [call("notebook_write", text="水族館で獺を見た"), "ok", call("notebook_search", query="水族館"), "found"]
    with plugin_host(config=NOTEBOOK, model=script) as host:
        number = json.loads(host.ask("write").tool_calls[0].result)["id"]
        found = json.loads(host.ask("search").tool_calls[0].result)["entries"]
        assert [entry["id"] for entry in found] == [number]
        host.model.say(call("notebook_forget", id=number), "gone", call("notebook_search", query="水族館"), "nothing")
        assert json.loads(host.ask("forget").tool_calls[0].result) == {"forgotten": True}
        assert [e["kind"] for e in json.loads(host.ask("again").tool_calls[0].result)["entries"]] in ([], ["turn"])


def test_a_query_full_of_operators_is_words() -> None:
    script = [call("notebook_search", query='otter" OR NEAR( * "x'), "ok"]
    with plugin_host(config=NOTEBOOK, model=script) as host:
        assert json.loads(host.ask("search").tool_calls[0].result) == {"entries": []}


def test_the_service_recalls_and_learns_and_is_given_the_key(service: MemoryService) -> None:
    with plugin_host(**http(service), model=["Noted.", "Ottilie."]) as host:
        host.ask("My otter is Ottilie")
        settle(host)
        host.ask("Which otter ?")
        assert "- My otter is Ottilie" in host.model.messages[-1]["content"]
    assert {seen[2] for seen in service.seen} == {"Bearer k-123"}
    assert [seen[1] for seen in service.seen][:2] == ["/v1/recall", "/v1/turns"]
    assert service.seen[1][3]["messages"] == [
        {"role": "user", "content": "My otter is Ottilie"},
        {"role": "assistant", "content": "Noted."},
    ]


def test_the_service_s_tools(service: MemoryService) -> None:
    script = [call("memory_store", text="likes otters"), call("memory_recall", query="otters"), "ok"]
    with plugin_host(**http(service), model=script) as host:
        stored, recalled = host.ask("go").tool_calls
        number = json.loads(stored.result)["id"]
        assert json.loads(recalled.result) == {"memories": [{"id": number, "text": "likes otters"}]}
        host.model.say(call("memory_delete", id=number), "gone")
        host.ask("forget it")
        assert "likes otters" not in str(service.memories)


@pytest.mark.parametrize("answer", [(500, b""), (302, b""), (200, b"no json"), (200, b"[]"), (200, b'{"memories": 1}')])
def test_a_service_that_is_broken_costs_nothing_but_its_memory(
    service: MemoryService, answer: tuple[int, bytes]
) -> None:
    service.answer = answer
    script = ["one", call("memory_recall", query="otters"), "two"]
    with plugin_host(**http(service), model=script) as host:
        assert host.ask("first").text == "one"
        assert service.url in json.loads(host.ask("second").tool_calls[0].result)["error"]
    assert not any(seen[1] == "/elsewhere" for seen in service.seen)


def test_a_dead_service_is_left_alone_for_a_while(service: MemoryService) -> None:
    service.answer = (503, b"")
    with plugin_host(**http(service), model=["x"] * 6) as host:
        for n in range(6):
            host.ask(f"question {n}")
            settle(host)
    assert len(service.seen) == 3


@pytest.mark.parametrize(
    ("url", "said"),
    [("ftp://x", "expected http://"), ("http://memory.example", "would send HTTP_MEMORY_KEY over the network")],
)
def test_an_address_that_cannot_be_used_is_told(url: str, said: str) -> None:
    env = {"HTTP_MEMORY_URL": url, "HTTP_MEMORY_KEY": "k"}
    with plugin_host(config={"memory": {"provider": "http-memory"}}, env=env, model=["hi"]) as host:
        assert said in str(host.ask("hello").events[0])


def test_nothing_of_them_is_read_when_another_or_none_is_chosen() -> None:
    with plugin_host(model=["hi"]) as host:
        host.ask("hello")
        assert not [name for name in sys.modules if "notebook" in name or "http_memory" in name]
        assert not (host.home / "notebook.db").exists()
