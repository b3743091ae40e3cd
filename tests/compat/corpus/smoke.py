"""Call once what was registered: hooks with all their keywords, checks, and tools with nothing to do."""

from __future__ import annotations

import io
import json
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from compat.repositories.keywords import KEYWORDS
from hermes_agent.host import Host
from hermes_agent.policy import Approvals, NoApprover
from hermes_agent.tools import CallScope

__all__ = ["call_everything"]

CALL_LIMIT_S = 5.0
TOTAL_LIMIT_S = 35.0


def call_everything(host: Host) -> list[str]:
    """Call everything that plugins registered; return a line for each call that failed in a way that is ours to know.

    What a plugin raises with made-up arguments is its own affair; a missing name of the host is not.
    """
    failures: list[str] = []
    until = time.monotonic() + TOTAL_LIMIT_S
    for what, call in _calls(host):
        if time.monotonic() > until:
            break
        error = _limited(call)
        if isinstance(error, ImportError | AttributeError | TypeError):
            failures.append(f"{what}: {type(error).__name__}: {error}")
    return failures


def _calls(host: Host) -> list[tuple[str, Any]]:
    keys = {r.manifest.key for r in host.plugins.records}
    calls: list[tuple[str, Any]] = []
    for name, keywords in KEYWORDS.items():
        for owner, function in host.hooks.listeners(name):
            if owner in keys:
                given = keywords | {"telemetry_schema_version": "hermes.observer.v1"}
                calls.append((f"hook {name}", lambda f=function, k=given: f(**k)))
    scope = CallScope("session-1", "task-1", "turn-1", Path.cwd(), Approvals(NoApprover("in a test"), timeout_s=1))
    for key in keys:
        for name in host.tools.owned_by(key):
            entry = host.tools.get_entry(name)
            if entry is not None and entry.check_fn is not None:
                calls.append((f"check of {name}", entry.check_fn))
            calls.append((f"tool {name}", lambda n=name: _tool(host, n, scope)))
    return calls


def _tool(host: Host, name: str, scope: CallScope) -> None:
    host.dispatcher.run_inline("call-1", name, {}, scope)


def _limited(call: Any) -> BaseException | None:
    """Run a call in a thread of its own and return what it raised; one that takes too long is left alone."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                value = call()
            json.dumps(value, default=str)
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CALL_LIMIT_S)
    return raised[0] if raised else None
