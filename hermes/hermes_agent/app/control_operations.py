"""Operations of the control socket, for commands and for members of the daemon's group.

Members send messages to the agent and see their own sessions. The kernel does not identify the calling member if the
unit has users of its own. Therefore each member sends a key from their own home (`app.daemon_client`). The principal of
their sessions is `member:` with the hash of that key. Members may run commands of plugins and those that act on their
own session. Commands that change the agent for others belong to its operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.command_router import CommandRouter, RunSkill, UnknownCommand
from hermes_agent.commands import help_text, parse_command
from hermes_agent.core.caches import LruDict
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.log_context import log_context
from hermes_agent.core.messages import Notice, TurnSink, new_session_id
from hermes_agent.core.registry import BUILTIN
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.plugins.plugin_state import report_loaded, report_rejected
from hermes_agent.plugins.usage_account import UsageAccount, metrics_text, stalled_calls
from hermes_agent.policy import NoApprover
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.server.conversations import AnswerSource, CommandAnswer, TurnAnswer
from hermes_agent.service.daemon_state import read_note, read_state

if TYPE_CHECKING:
    from hermes_agent.agent import Agent
    from hermes_agent.app.daemon import ReloadSignal
    from hermes_agent.gateway.gateway import Gateway
    from hermes_agent.host import Host
    from hermes_agent.plugins.plugin_record import LoadedPlugin
    from hermes_agent.service.control_socket import Operation


PLATFORM = "cli"
APPROVER = NoApprover("over the daemon's socket")
MAX_NEW_SESSIONS = 512


class MemberCommand(LazyNamedTuple):
    """A command of a member."""

    source: CommandAnswer
    during_turn: bool
    """Whether it may run during a turn of its session."""


class MemberCommands:
    """The commands of members, who reach the agent through its control socket."""

    def __init__(self, slash: CommandRouter) -> None:
        self._slash, self._table = slash, slash.commands
        self._table.bind("socket", {"help": self._help, "new": _of_the_client, "quit": _of_the_client})
        self._new_sessions: LruDict[str, str] = LruDict(MAX_NEW_SESSIONS)
        """Sessions with a command before their first message, with their principals."""

    def is_new_session(self, session: str, principal: str) -> bool:
        """Say whether the first line of a session was a command."""
        return self._new_sessions.get(session) == principal

    async def parse_line(self, text: str, session: str, principal: str) -> MemberCommand | str:
        """Return the command to run, or the text of a turn.

        Args:
            session: empty for a new session.

        Raises:
            UserError: the command is unknown, or a member may not run it.
        """
        own = session or new_session_id()
        parsed = parse_command(text)
        if parsed is not None and self._table.find(parsed[0], "socket") is None:
            command = self._table.find(parsed[0], "http")
            if command is not None:
                raise UserError(
                    f"/{command.name} is for the agent's operator",
                    hint="/help lists what members of the group may run.",
                )
        found = await self._slash.resolve(text, where="socket", session_id=own, platform=PLATFORM)
        match found:
            case None:
                return text
            case RunSkill(message):
                return message
            case UnknownCommand():
                raise UserError(found.reply(), exit_status=EXIT_USAGE)
        command = found.command
        is_of_session = not command.is_bound and self._table.owner(command.name) == BUILTIN
        if is_of_session and not session:
            raise UserError(
                f"/{command.name} is about a session, and none is open", hint="Say something first, or give -c."
            )
        if not session:
            self._new_sessions[own] = principal
        scope = self._slash.scope(own, PLATFORM, APPROVER, principal=principal)
        return MemberCommand(CommandAnswer(self._slash, found, scope, ""), command.during_turn)

    def _help(self, arguments: str) -> str:
        """Return the commands of members with their descriptions; in a worker."""
        rows = self._table.help_rows("socket")
        names = {row.name for row in rows}
        rows += [row for row in self._slash.rows("socket", PLATFORM) if row.name not in names]
        wanted = arguments.strip().removeprefix("/").lower()
        if wanted not in ("", "all"):
            found = self._table.find(wanted, "socket")
            rows = [row for row in rows if row.name == (wanted if found is None else found.name)]
        return help_text(rows) or f"There is no command /{wanted}. /help lists the commands."


def _of_the_client(arguments: str) -> str:
    """Answer a command that `app.daemon_client` runs itself."""
    return "The client runs this command itself."


CHECK = "`hermes plugins check {}`"


class PluginTrouble(LazyNamedTuple):
    """One problem of one plugin."""

    plugin: str
    state: str
    """`failed`, `changed`, `refused`, `stale`, `suspended`, `stalled`, `errors`, or `ended` for its own process."""
    reason: str
    remedy: str = ""


def find_plugin_troubles(
    plugins: PluginManager, account: UsageAccount, bridge: Bridge, suspended: Mapping[str, str]
) -> list[PluginTrouble]:
    """Return the problems of each plugin.

    Do not call it on the core loop: it waits up to one second for a blocked plugin loop.

    Args:
        suspended: why the hooks of a plugin are suspended, by its key.
    """
    found = [PluginTrouble(r.name, "refused", f"{r.path} is not used: {r.reason}") for r in plugins.rejected]
    for record in plugins.records:
        report = report_loaded(record)
        if report.status in ("failed", "changed"):
            remedy = report.remedy or (CHECK.format(report.path) if report.status == "failed" else "")
            found.append(PluginTrouble(report.key, report.status, report.reason, remedy))
        if report.stale:
            found.append(PluginTrouble(report.key, "stale", f"a newer version could not be loaded: {report.stale}"))
        if report.fault:
            text, logs = f"its process was {report.fault}", f"`hermes logs --plugin {report.key}` has its last lines."
            found.append(PluginTrouble(report.key, "ended", text, logs))
    for key, why in suspended.items():
        text = f"its hooks are not called any longer, and its guards block: {why}"
        found.append(PluginTrouble(key, "suspended", text, f"Raise plugins.entries.{key}.hook_timeout_s, or restart."))
    for call in stalled_calls(bridge.stalled(), plugins.suspects):
        text = f"a call has not returned for {call.seconds:.0f} s after its deadline, at {call.place}"
        found.append(PluginTrouble(call.plugin, "stalled", text, "The thread is lost until `hermes gateway restart`."))
    for key, tally in account.usage_by_plugin().items():
        if tally.other_errors:
            text = f"{tally.other_errors} errors in its threads and checks, the last: {tally.last_fault}"
            found.append(PluginTrouble(key, "errors", text, f"`hermes logs --plugin {key}` shows them."))
    return sorted(found)


def troubles_as_json(host: Host) -> list[dict[str, str]]:
    """Return the problems of plugins as mappings with `plugin`, `state`, `reason` and `remedy`.

    Do not call it on the core loop.
    """
    return [
        one._asdict() for one in find_plugin_troubles(host.plugins, host.account, host.bridge, host.hooks.suspended())
    ]


class PluginStatus:
    """The plugins of a host, as the HTTP server requests them.

    Args:
        after_reload: applies the settings of plugins and config after a reload; returns the changes by platform.
    """

    def __init__(self, host: Host, after_reload: Callable[[], Awaitable[Mapping[str, str]]] | None = None) -> None:
        self._host = host
        self._after_reload = after_reload

    def report(self) -> list[dict[str, Any]]:
        """Return the state, the reason and the usage of each plugin; rejected plugins come last."""
        found = [self._describe(record) for record in self._host.plugins.records]
        rejected = map(report_rejected, self._host.plugins.rejected)
        fields = ("key", "source", "path", "status", "error")
        return found + [{name: getattr(report, name) for name in fields} for report in rejected]

    def metrics(self) -> str:
        """Return the usage of all plugins in the text format of Prometheus."""
        return metrics_text(self._host.account.usage_by_plugin())

    async def reload(self, name: str | None, *, new_sessions: bool = False) -> list[dict[str, str]]:
        """Reload in a worker, so that a plugin that hangs delays no other request.

        Args:
            new_sessions: show the tools of a plugin that did not run before to new sessions only.
        """
        done = await self._host.bridge.run(partial(self._host.plugins.reload, name, new_sessions=new_sessions))
        platforms = await self._after_reload() if self._after_reload is not None else {}
        later = self._host.needs_restart if name is None else []
        rows = [{"key": result.key, "outcome": result.outcome, "reason": result.reason} for result in done]
        rows += [{"key": f"platform {n}", "outcome": what, "reason": ""} for n, what in platforms.items()]
        return rows + [{"key": f"config {key}", "outcome": "needs a restart", "reason": ""} for key in later]

    def _describe(self, record: LoadedPlugin) -> dict[str, Any]:
        report = report_loaded(record)
        fields = ("status", "path", "where", "remedy", "stale", "problems", "notes")
        known = {name: getattr(report, name) for name in fields} | {"tools": report.registers.get("tools", [])}
        return record.summary() | known | {"account": self._host.account.usage_of(report.key).to_json()}


FOR_MEMBERS = frozenset({"status", "send", "talk", "sessions", "session"})
"""Operations for members: they neither control the daemon nor show sessions of others."""
KEY_LENGTH = 32
"""Smallest number of characters of a key."""
SESSIONS_MAX = 500


def make_operations(
    host: Host, gateway: Gateway, plugins: PluginStatus, reloads: ReloadSignal, *, at_once: int
) -> dict[str, Operation]:
    """Return the operations by name.

    Args:
        at_once: turns of members that may run at the same time.
    """
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
        troubles = await host.bridge.run(troubles_as_json, host)
        counts = await host.delivery.counts()
        return {"delivery": counts, "parked": parked, "platforms": gateway.states(), "plugins": troubles, **where}

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
    own |= {"refresh": partial(_refresh, host), "plugin": partial(_apply_plugin, plugins)}
    return own | {"talk": members.converse, "sessions": members.sessions, "session": members.session}


async def _apply_plugin(plugins: PluginStatus, question: Mapping[str, Any]) -> dict[str, Any]:
    return {"plugins": await plugins.reload(str(question["name"]), new_sessions=True)}


async def _refresh(host: Host, question: Mapping[str, Any]) -> dict[str, Any]:
    await host.delivery.refresh()
    return {}


async def _restart(question: Mapping[str, Any]) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGUSR1)
    return {"pid": os.getpid()}


class GroupOperations:
    """Answers the requests of members of the group.

    Args:
        at_once: turns that may run at the same time; further turns wait.
    """

    def __init__(self, agent: Agent, slash: CommandRouter, *, at_once: int) -> None:
        self._agent = agent
        self._commands = MemberCommands(slash)
        self._slots = asyncio.Semaphore(at_once)
        self._busy: set[str] = set()

    async def converse(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Run a turn or a slash command: `{text, session?}`; the session is an id or `last`.

        The answer has `text`, `session`, `notices`, `reason` and `incomplete_reason` (why the text is incomplete).
        """
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
        """Run a command, during a turn of its session if it may; its text then becomes a turn."""
        source = asked.source
        async with self._alone("" if asked.during_turn else session):
            try:
                end = await self._answer(source, "")
            except asyncio.CancelledError:
                source.interrupt()
                raise
        texts, notices = [end["text"]] if end["text"] else [], end["notices"]
        waiting = (
            () if session in self._busy else self._agent.injected.take(source.session_id)
        )  # otherwise its turn adds them
        for said in waiting:
            end = await self._turn(said, source.session_id, principal)
            texts.append(end["text"])
            notices += end["notices"]
        return end | {"text": "\n".join(texts), "notices": notices}

    @contextlib.asynccontextmanager
    async def _alone(self, session: str) -> AsyncIterator[None]:
        """Hold a session while the block runs; an empty id holds none.

        Raises:
            UserError: another request holds the session.
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
        """Return one session with its messages: `{id}`."""
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
            conversation = await self._agent.open(
                session or None, platform=PLATFORM, approver=APPROVER, principal=principal
            )
            return await self._answer(TurnAnswer(conversation), text)

    async def _answer(self, source: AnswerSource, text: str) -> dict[str, Any]:
        from hermes_agent.console.output import (  # only needed for a request
            incomplete_reason,
            without_sentence,
        )

        notes = _TurnNotes()
        try:
            with log_context(session=source.session_id):
                end = await source.answer(text, notes)
            return {
                "session": source.session_id,
                "notices": notes.notices,
                "text": without_sentence(end.text, notes.sentence),
                "reason": end.reason,
                "not_whole": notes.sentence or incomplete_reason(end),
            }
        finally:
            await source.close("session_boundary")


class _TurnNotes(TurnSink):
    """Collects the texts of a turn that are not part of its answer."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.sentence = ""
        """The sentence with which the agent ended the turn, or ""."""

    def stop_sentence(self, text: str) -> None:
        self.sentence = text.strip()

    def notice(self, event: Notice) -> None:
        self.notices.append(event.text)


def _principal(question: Mapping[str, Any]) -> str:
    key = str(question.get("key") or "")
    if len(key) < KEY_LENGTH:
        raise UserError(f"a member's request needs `key`: a secret of at least {KEY_LENGTH} characters")
    return f"member:{hashlib.sha256(key.encode()).hexdigest()[:16]}"
