"""What the commands can ask of the running daemon, over its control socket."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.app.members import Members
from hermes_agent.core.errors import UserError
from hermes_agent.service.state import noted, read_state

if TYPE_CHECKING:
    from hermes_agent.gateway.runner import Gateway
    from hermes_agent.host import Host
    from hermes_agent.server.reloading import Reloads
    from hermes_agent.service.control import Operation

__all__ = ["FOR_MEMBERS", "operations"]

FOR_MEMBERS = frozenset({"status", "send", "talk", "sessions", "session"})
"""What is no question of running the daemon, nor of somebody else's sessions."""


def operations(host: Host, gateway: Gateway, reloads: Reloads, *, at_once: int) -> dict[str, Operation]:
    """Return what can be asked, by name.

    Args:
        at_once: turns of members that run at once.
    """
    members = Members(host.agent, at_once=at_once)

    async def status(question: Mapping[str, Any]) -> dict[str, Any]:
        parked = [
            {"target": str(one.target), "reason": one.reason, "since": one.since, "count": one.count}
            for one in await host.delivery.parked()
        ]
        state = read_state(host.home)
        where = {
            "pid": os.getpid(),
            "started": state.started if state else 0.0,
            "home": str(host.home),
            "address": noted(host.home, "http") or "",
        }
        return {"delivery": await host.delivery.counts(), "parked": parked, "platforms": gateway.states(), **where}

    async def stop(question: Mapping[str, Any]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        if question.get("now"):
            os.kill(os.getpid(), signal.SIGTERM)
        return {"pid": os.getpid()}

    async def reload(question: Mapping[str, Any]) -> dict[str, Any]:
        return {"told": await reloads.now()}

    async def send(question: Mapping[str, Any]) -> dict[str, Any]:
        name = await gateway.say(str(question["to"]), str(question["text"]))
        return await _sent(name, float(question.get("wait_s") or 0))

    async def _sent(name: str, wait_s: float) -> dict[str, Any]:
        if not wait_s:
            return {"reply": name, "state": "pending"}
        try:
            return {"reply": name, "state": await host.delivery.settled(name, wait_s)}
        except TimeoutError:
            return {"reply": name, "state": "pending"}

    async def revive(question: Mapping[str, Any]) -> dict[str, Any]:
        wanted = str(question["target"])
        found = [one.target for one in await host.delivery.parked() if wanted in ("all", str(one.target))]
        if not found:
            raise UserError(f"no target {wanted!r} is parked", hint="`hermes gateway status` lists those that are.")
        for target in found:
            await host.delivery.revive(target)
        return {"revived": [str(target) for target in found]}

    own = {"status": status, "stop": stop, "restart": _restart, "reload": reload, "send": send, "revive": revive}
    return own | {"talk": members.talk, "sessions": members.sessions, "session": members.session}


async def _restart(question: Mapping[str, Any]) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGUSR1)
    return {"pid": os.getpid()}
