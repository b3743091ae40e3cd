"""Addresses in the arguments of tools and the operator's table of hosts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.config.settings import Settings
from hermes_agent.core.registry import Owner
from hermes_agent.hooks import HookBus
from hermes_agent.policy import Approvals, Refusal
from hermes_agent.policy.network import HostTables, InvalidHost
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import CallScope, Dispatcher, ToolOutcome, ToolRegistry
from hermes_agent.tools.approval_gate import parse_destination
from hermes_agent.tools.results import ResultStore
from people import Person


class Place:
    """A dispatcher with the plugin's tool `browser_navigate`."""

    def __init__(self, tmp_path: Path, answer: Any, **network: Any) -> None:
        settings = Settings({"network": network})
        self.bridge, self.registry, self.person = Bridge(), ToolRegistry(), Person(always=answer)
        tables = HostTables(lambda: settings)
        results = ResultStore(tmp_path / "results")
        self.dispatcher = Dispatcher(
            self.registry, HookBus(self.bridge.wait_plugin), self.bridge, results, tables=tables
        )
        self.approvals = Approvals(self.person, timeout_s=5)
        self.opened: list[Any] = []
        self.cwd = tmp_path
        self.registry.register(
            "browser_navigate", "browser", {"parameters": {"type": "object"}}, self.handle, owner=Owner("a-plugin")
        )

    def handle(self, args: dict[str, Any], **kwargs: Any) -> str:
        self.opened.append(args)
        return "{}"

    async def call(self, **args: Any) -> ToolOutcome:
        scope = CallScope("s", "t", "u", self.cwd, self.approvals)
        return await self.dispatcher.run("call_1", "browser_navigate", args, scope)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("https://Example.org/a?b", ("example.org", 443)),
        ("http://example.org.:8080", ("example.org", 8080)),
        ("https://user:pw@example.org/", ("example.org", 443)),
        ("https://good.example@evil.example/", ("evil.example", 443)),
        ("https:\\\\evil.example\\@good.example", ("evil.example", 443)),
        ("https:evil.example/x", ("evil.example", 443)),
        ("ht\ntps:/evil.example", ("evil.example", 443)),
        ("example.org:8080", ("example.org", 8080)),
        ("//evil.example/x", ("evil.example", 443)),
        ("evil.example/x", ("evil.example", 443)),
        ("http://2130706433/", ("127.0.0.1", 80)),
        ("wss://a.example", ("a.example", 443)),
        ("data:text/plain,x", None),
        ("about:blank", None),
    ],
)
def test_an_address_leads_to_one_host(address: str, found: Any) -> None:
    assert parse_destination(address) == found


@pytest.mark.parametrize(
    "address", ["https://", "https://a b/", "http://[::1/", "http://a.example:99999/", "http://a..b/"]
)
def test_what_leads_nowhere_that_is_understood_is_said_to(address: str) -> None:
    with pytest.raises(InvalidHost):
        parse_destination(address)


@pytest.mark.attack("egress")
@pytest.mark.parametrize(
    "address",
    ["https://evil.example/", "https://good.example@evil.example/", "HTTPS://EVIL.EXAMPLE./", "https://evil.example:8443/",
     "http://good.example.evil.example/", "https://evil。example/", "http://good.example:80@evil.example/"],
)  # fmt: skip
@pytest.mark.parametrize(
    "network",
    [
        {"tools": "hosts", "hosts": ["good.example"]},
        {"deny": ["evil.example", "*.evil.example", "*.example.evil.example"]},
    ],
)
async def test_a_browser_does_not_open_what_the_table_refuses(
    tmp_path: Path, address: str, network: dict[str, Any]
) -> None:
    place = Place(tmp_path, "once", **network)
    outcome = await place.call(url=address)
    assert outcome.status == "blocked" and place.opened == [] and "`network." in outcome.result
    assert (await place.call(urls=["https://good.example/", address])).status == "blocked"
    assert (await place.call(url="https://good.example/")).status != "blocked"


async def test_with_ask_the_user_is_asked_about_the_host(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    place = Place(tmp_path, "session", tools="ask", hosts=["good.example"])
    for url in ("https://other.example/a", "https://other.example/b", "https://good.example/", "about:blank"):
        assert (await place.call(url=url)).status != "blocked"
    (asked,) = place.person.asked
    assert asked.summary == "reach other.example" and asked.detail == "https://other.example/a"
    place.person.answer = Refusal("nobody is there")
    assert (await place.call(url="https://third.example/")).status == "blocked"
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("network: ")]
    assert lines[0] == "network: session=s tool=browser_navigate host=other.example port=443 verdict=allowed"
    assert lines[-1].endswith("host=third.example port=443 verdict=refused") and len(lines) == 4


def test_what_did_not_come_through_the_pipeline_is_refused_too(tmp_path: Path) -> None:
    place = Place(tmp_path, "once", deny=["evil.example"])
    assert "`network.deny` names it" in place.registry.dispatch("browser_navigate", {"url": "https://evil.example"})
    assert place.opened == []


async def test_a_table_that_restricts_nothing_asks_about_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, "deny", tools="on", hosts=["good.example"])
    assert (await place.call(url="https://other.example/")).status != "blocked" and place.person.asked == []
