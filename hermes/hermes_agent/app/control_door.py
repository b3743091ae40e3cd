"""What can be asked of the running daemon over its control socket: by the commands, and by people of its group.

Members talk to the agent, and see what they said themselves. The kernel does not tell the daemon which member asks,
where the unit has users of its own. So each brings a key that lies in their own home (`app.daemon_client`), and their
sessions are those of `member:` and the key's hash.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_agent.app.member_commands import APPROVER, PLATFORM, MemberCommand, MemberCommands
from hermes_agent.app.plugin_door import troubles_as_json
from hermes_agent.core.errors import UserError
from hermes_agent.core.events import Notice, StopSentence, TurnFinished
from hermes_agent.service.context import log_context
from hermes_agent.service.state import read_note, read_state

if TYPE_CHECKING:
    from hermes_agent.agent import Agent
    from hermes_agent.agent.conversation import Conversation
    from hermes_agent.agent.slash import CommandRouter
    from hermes_agent.gateway.runner import Gateway
    from hermes_agent.host import Host
    from hermes_agent.server.commands import CommandConversation
    from hermes_agent.server.reloading import ReloadSignal
    from hermes_agent.service.control import Operation

__all__ = ["FOR_MEMBERS", "KEY_LENGTH", "GroupOperations", "make_operations"]

FOR_MEMBERS = frozenset({"status", "send", "talk", "sessions", "session"})
"""What is no question of running the daemon, nor of somebody else's sessions."""
KEY_LENGTH = 32
"""Characters of a key at least."""
SESSIONS_MAX = 500


def make_operations(host: Host, gateway: Gateway, reloads: ReloadSignal, *, at_once: int) -> dict[str, Operation]:
    """Return what can be asked, by name. `at_once`: turns of members that run at once."""
    members = GroupOperations(host.agent, host.slash, at_once=at_once)

    async def status(question: Mapping[str, Any]) -> dict[str, Any]:
        parked = [
            {"target": str(one.target), "reason": one.reason, "since": one.since, "count": one.count}
            for one in await host.delivery.list_parked()
        ]
        state = read_state(host.home)
        where = {
            "pid": os.getpid(),
            "started": state.started if state else 0.0,
            "home": str(host.home),
            "address": read_note(host.home, "http") or "",
            "cwd": str(host.working_directory),
        }
        plugins = await host.bridge.run(troubles_as_json, host)
        counts = await host.delivery.counts()
        return {"delivery": counts, "parked": parked, "platforms": gateway.states(), "plugins": plugins, **where}

    async def stop(question: Mapping[str, Any]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        if question.get("now"):
            os.kill(os.getpid(), signal.SIGTERM)
        return {"pid": os.getpid()}

    async def reload(question: Mapping[str, Any]) -> dict[str, Any]:
        return {"told": await reloads.run()}

    async def send(question: Mapping[str, Any]) -> dict[str, Any]:
        name = await gateway.send_text(str(question["to"]), str(question["text"]))
        return await _sent(name, float(question.get("wait_s") or 0))

    async def _sent(name: str, wait_s: float) -> dict[str, Any]:
        if not wait_s:
            return {"reply": name, "state": "pending"}
        try:
            return {"reply": name, "state": await host.delivery.wait_settled(name, wait_s)}
        except TimeoutError:
            return {"reply": name, "state": "pending"}

    async def revive(question: Mapping[str, Any]) -> dict[str, Any]:
        wanted = str(question["target"])
        found = [one.target for one in await host.delivery.list_parked() if wanted in ("all", str(one.target))]
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


class GroupOperations:
    """Answers what members of the group ask. `at_once`: turns that run at once; more wait."""

    def __init__(self, agent: Agent, slash: CommandRouter, *, at_once: int) -> None:
        self._agent = agent
        self._commands = MemberCommands(slash)
        self._slots = asyncio.Semaphore(at_once)
        self._busy: set[str] = set()

    async def talk(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Run a turn, or a slash command: `{text, session?}`, an id or `last`. The answer has `text`, `session`,
        `notices`, `reason`, `incomplete_reason` (why the text is not the whole answer)."""
        principal = _principal(question)
        session = str(question.get("session") or "")
        if session == "last":
            session = await self._last(principal)
        elif session and not self._commands.is_new_session(session, principal):
            session = (await self._find(session, principal)).id
        text = str(question.get("text") or "")
        asked = await self._commands.parse_line(text, session, principal)
        if isinstance(asked, MemberCommand):
            return await self._command(asked, session, principal)
        return await self._turn(asked, session, principal)

    async def _command(self, asked: MemberCommand, session: str, principal: str) -> dict[str, Any]:
        """Run a command, beside a turn of its session if it may, and then what it says into the session."""
        talk = asked.talk
        async with self._alone("" if asked.beside else session):
            try:
                end = await self._events(talk, "")
            except asyncio.CancelledError:
                talk.interrupt()
                raise
        texts, notices = [end["text"]] if end["text"] else [], end["notices"]
        waiting = (
            () if session in self._busy else self._agent.injected.take(talk.session_id)
        )  # else its turn takes them
        for said in waiting:
            end = await self._turn(said, talk.session_id, principal)
            texts.append(end["text"])
            notices += end["notices"]
        return end | {"text": "\n".join(texts), "notices": notices}

    @contextlib.asynccontextmanager
    async def _alone(self, session: str) -> AsyncIterator[None]:
        """Keep others out of a session; empty is none in particular.

        Raises:
            UserError: somebody is in it.
        """
        if session in self._busy:
            raise UserError(f"the session {session} answers something else now", hint="Wait, or begin another one.")
        self._busy |= {session} - {""}
        try:
            yield
        finally:
            self._busy.discard(session)

    async def sessions(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """List sessions: `{limit, source?}`."""
        limit = max(1, min(int(question.get("limit") or 20), SESSIONS_MAX))
        source = question.get("source")
        of = self._agent.principals.visible_to(_principal(question))
        found = await self._agent.call_transcript("recent", limit, source=source and str(source), of=of)
        return {"sessions": [asdict(session) for session in found]}

    async def session(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return one session with what was said: `{id}`."""
        found = await self._find(str(question.get("id") or ""), _principal(question))
        messages = await self._agent.call_transcript("messages", found.id)
        return {"session": asdict(found), "messages": [m.to_dict() | {"tool_name": m.tool_name} for m in messages]}

    async def _find(self, session: str, principal: str) -> Any:
        return await self._agent.call_transcript("find", session, of=self._agent.principals.visible_to(principal))

    async def _last(self, principal: str) -> str:
        found = await self._agent.call_transcript("recent", 1, source="cli", of=[principal])
        if not found:
            raise UserError("there is no session to continue", hint="Start one with `hermes`.")
        return str(found[0].id)

    async def _turn(self, text: str, session: str, principal: str) -> dict[str, Any]:
        async with self._alone(session), self._slots:
            talk = await self._agent.open(session or None, platform=PLATFORM, approver=APPROVER, principal=principal)
            return await self._events(talk, text)

    async def _events(self, talk: Conversation | CommandConversation, text: str) -> dict[str, Any]:
        from hermes_agent.terminal.oneshot import (  # a daemon that is not asked needs none
            incomplete_reason,
            without_sentence,
        )

        notices: list[str] = []
        sentence = ""
        try:
            with log_context(session=talk.session_id):
                async with contextlib.aclosing(talk.turn(text)) as events:
                    async for event in events:
                        if isinstance(event, Notice):
                            notices.append(event.text)
                        elif isinstance(event, StopSentence):
                            sentence = event.text.strip()
                        elif isinstance(event, TurnFinished):
                            end = {"text": without_sentence(event.text, sentence), "reason": event.reason}
                            end["not_whole"] = sentence or incomplete_reason(event)
            return {"session": talk.session_id, "notices": notices, **end}
        finally:
            await talk.close("session_boundary")


def _principal(question: Mapping[str, Any]) -> str:
    key = str(question.get("key") or "")
    if len(key) < KEY_LENGTH:
        raise UserError(f"a member's question needs `key`, {KEY_LENGTH} characters or more that nobody else knows")
    return f"member:{hashlib.sha256(key.encode()).hexdigest()[:16]}"
