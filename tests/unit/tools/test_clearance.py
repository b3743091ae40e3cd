"""An approval is for the call that was shown: once, for a limited time, with nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.tools.clearance import CLEARED_S, Clearance, fingerprint

ARGS = {"command": "make", "n": [1, {"a": 2}]}


def call(**changed):
    given = {"tool": "terminal", "args": ARGS, "cwd": Path("/work"), "tainted": False} | changed
    return fingerprint(given["tool"], given["args"], given["cwd"], tainted=given["tainted"])


@pytest.mark.parametrize(
    "changed",
    [{"tool": "process"}, {"args": {**ARGS, "n": [1, {"a": 3}]}}, {"cwd": Path("/other")}, {"tainted": True}],
)
def test_an_approval_is_for_no_other_tool_arguments_directory_or_taint(changed):
    clearance = Clearance(call())
    assert not clearance.take(call(**changed))
    assert clearance.take(call(args=dict(reversed(ARGS.items()))))


def test_an_approval_is_used_once_and_expires():
    now = [0.0]
    late, early = Clearance(call(), lambda: now[0]), Clearance(call(), lambda: now[0])
    assert (early.take(call()), early.take(call())) == (True, False)
    now[0] = CLEARED_S + 1
    assert not late.take(call())
