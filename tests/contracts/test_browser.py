"""Browsers that run elsewhere (docs/plugins/kinds/browser.md): the suite, and who is selected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_agent.contracts.web import BrowserProvider, choose_browser


class InMemory(BrowserProvider):
    """Knows which are open."""

    def __init__(self, name: str = "memory", *, available: bool = True) -> None:
        self._name, self._available, self.open = name, available, set[str]()

    @property
    def name(self) -> str:
        return self._name

    def is_available(self) -> bool:
        return self._available

    def create_session(self, task_id: str) -> dict[str, Any]:
        self.open.add(task_id)
        return {"session_name": task_id, "bb_session_id": task_id, "cdp_url": "ws://127.0.0.1:9/x", "features": {}}

    def close_session(self, session_id: str) -> bool:
        known = session_id in self.open
        self.open.discard(session_id)
        return known

    def emergency_cleanup(self, session_id: str) -> None:
        self.open.discard(session_id)


@pytest.fixture(params=["in memory", "example plugin"])
def provider(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> BrowserProvider:
    """Every implementation."""
    made = InMemory() if request.param == "in memory" else example("browser")
    assert isinstance(made, BrowserProvider)
    return made


def test_it_says_who_it_is_under_both_pairs_of_names(provider: BrowserProvider) -> None:
    assert provider.name and provider.display_name == provider.provider_name()
    assert provider.is_available() is provider.is_configured() is True


def test_a_browser_is_started_and_ended_once(provider: BrowserProvider) -> None:
    session = provider.create_session("task-1")

    assert set(session) >= {"session_name", "bb_session_id", "cdp_url", "features"}
    assert session["cdp_url"].startswith(("ws://", "wss://", "http://", "https://"))
    assert provider.close_session(session["bb_session_id"]) is True
    assert provider.close_session(session["bb_session_id"]) is False


def test_the_emergency_end_raises_for_nobody(provider: BrowserProvider) -> None:
    session = provider.create_session("task-2")

    provider.emergency_cleanup(session["bb_session_id"])
    provider.emergency_cleanup("nobody's")

    assert provider.close_session(session["bb_session_id"]) is False


def test_a_provider_without_one_of_the_five_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="emergency_cleanup"):
        type(
            "Half",
            (BrowserProvider,),
            {"name": "h", "is_available": bool, "create_session": str, "close_session": str},
        )()


def test_the_config_selects() -> None:
    def choose(name: str, *providers: InMemory) -> tuple[Any, str]:
        return choose_browser({p.name: p for p in providers}, {"browser": {"cloud_provider": name}})

    memory, base, use = InMemory(), InMemory("browserbase"), InMemory("browser-use")
    assert choose("memory", memory)[0] is memory
    assert choose("local", base) == (None, "browser.cloud_provider selects a browser on this machine")
    assert choose("", base, use)[0] is use
    assert choose("", base, InMemory("browser-use", available=False))[0] is base
    assert choose("", memory) == (None, "browser.cloud_provider is not set: a browser on this machine")
    assert choose("gone")[1].startswith("browser.cloud_provider='gone' is set but no plugin registered that name.")


def test_the_upstream_name_is_this(served: None) -> None:
    from agent.browser_provider import BrowserProvider as upstream

    assert upstream is BrowserProvider
