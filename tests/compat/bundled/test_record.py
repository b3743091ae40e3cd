"""The record of upstream's bundled plugins, and its comparison."""

from __future__ import annotations

import copy
import json
import tomllib
from typing import Any

from compat.bundled.run import DECLINED, ORACLE, compared

PEER: dict[str, Any] = json.loads(ORACLE.read_text(encoding="utf-8"))
REFUSED = tomllib.loads(DECLINED.read_text(encoding="utf-8"))


def test_every_plugin_of_the_wheel_is_recorded_and_at_most_five_are_declined() -> None:
    assert len(PEER) == 93
    assert len(REFUSED) <= 5
    assert set(REFUSED) < set(PEER)


def test_a_missing_tool_and_a_changed_schema_are_differences() -> None:
    peer = PEER["google_meet"]
    missing, changed = copy.deepcopy(peer), copy.deepcopy(peer)
    del missing["tools"]["meet_join"]
    changed["tools"]["meet_join"]["schema_sha"] = "0" * 16

    assert compared(peer, copy.deepcopy(peer)) == []
    assert compared(peer, missing) == ["tools.meet_join is missing"]
    assert [line.partition(":")[0] for line in compared(peer, changed)] == ["tools.meet_join.schema_sha"]
