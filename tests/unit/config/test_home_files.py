"""Which files of the agent's home are open to whom."""

from __future__ import annotations

import pytest

from hermes_agent.config.home import FileAccess, find_denial

OWNER, USER = FileAccess(notes="", is_owner=True), FileAccess(notes="ann")


@pytest.mark.parametrize("place", ["band-libs/notes.txt", "band-libs/a/b.json", "my.plugin/x"])
def test_a_folder_that_a_plugin_made_is_open_to_the_owner_alone(place: str) -> None:
    assert find_denial(place, OWNER) is None
    assert find_denial(place, USER) == "it belongs to a plugin"
    assert find_denial(place, FileAccess()) == "it belongs to a plugin"
    folder = place.partition("/")[0]
    assert find_denial(folder, OWNER, is_folder=True) is None
    assert find_denial(folder, OWNER) is not None  # a file of that name is not known


@pytest.mark.parametrize(
    "place",
    [
        *("state.db", ".env", "auth.json", "history", "gateway_state.json", "webhook_subscriptions.json"),
        *("processes/1/output", "cache/documents/x", "mcp-tokens/a.json", "restore-points/x", "gateway/x.json"),
        *("profiles/x/config.yaml", "sessions/x.jsonl", "whatsapp/creds.json", ".hidden/x", "run/control.sock"),
    ],
)
def test_state_of_the_agent_is_open_to_nobody(place: str) -> None:
    assert find_denial(place, OWNER) is not None
    assert find_denial(place, USER) is not None
    if "/" in place:
        assert find_denial(place.partition("/")[0], USER, is_folder=True) is not None or place.startswith("cache/")
