"""Members of the daemon's group: what they may ask, and of whom."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_agent.app.control_door import KEY_LENGTH, Members
from hermes_agent.core.errors import UserError
from hermes_agent.testing import plugin_host

ANNA, BOB = "a" * KEY_LENGTH, "b" * KEY_LENGTH


def test_members_see_their_own_sessions_and_no_more_than_they_ask_for() -> None:
    with plugin_host(model=["one", "two", "three"]) as host:
        members, wait = Members(host.host.agent, at_once=1), host.host.bridge.wait_core

        def talk(key: str) -> dict[str, Any]:
            return wait(members.talk({"key": key, "text": "hello"}))  # type: ignore[no-any-return]

        def listed(**question: Any) -> list[dict[str, Any]]:
            return wait(members.sessions(question))["sessions"]  # type: ignore[no-any-return]

        mine = [talk(ANNA)["session"], talk(ANNA)["session"]]
        talk(BOB)
        assert {one["id"] for one in listed(key=ANNA)} == set(mine)
        assert len(listed(key=ANNA, limit=-1)) == 1
        with pytest.raises(UserError, match="there is no session"):
            wait(members.session({"key": BOB, "id": mine[0]}))
        with pytest.raises(UserError, match="nobody else knows"):
            listed(key="")
