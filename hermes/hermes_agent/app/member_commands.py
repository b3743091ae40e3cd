"""Slash commands of the daemon's group members: which there are, and for whom one runs.

Members may give commands of plugins, and those that work on their own session. What changes the agent for others is
its operator's.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from hermes_agent.agent.slash import CommandCall, CommandRouter, RunSkill, UnknownCommand
from hermes_agent.commands import find_command, parse_command
from hermes_agent.contracts.command import SlashCommand
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.ids import new_session_id
from hermes_agent.core.registry import BUILTIN
from hermes_agent.policy import NoApprover
from hermes_agent.server.commands import CommandConversation

__all__ = ["APPROVER", "PLATFORM", "MemberCommand", "MemberCommands"]

PLATFORM = "cli"
APPROVER = NoApprover("over the daemon's socket")
HELP = "help"
SESSION_COMMANDS = frozenset({"compress", "context", "undo", "usage"})
"""Commands of the agent that work on the session in which they are given."""
CLIENT_COMMANDS = {"new": "begin a new session (also /reset, /clear)", "exit": "leave (also /quit, Ctrl-D)"}
"""What the client itself understands (`app.daemon_client`)."""
MAX_NEW_SESSIONS = 512


class MemberCommand(NamedTuple):
    """A command that is to be run."""

    talk: CommandConversation
    beside: bool
    """Whether it may run beside a turn of its session."""


class MemberCommands:
    """What lines of members mean."""

    def __init__(self, slash: CommandRouter) -> None:
        self._slash = slash
        self._new_sessions: OrderedDict[str, str] = OrderedDict()
        """Sessions in which commands were given before anything was said, with their principals."""

    def is_new_session(self, session: str, principal: str) -> bool:
        """Say whether a member began a session with a command."""
        return self._new_sessions.get(session) == principal

    async def parse_line(self, text: str, session: str, principal: str) -> MemberCommand | str:
        """Return the command to run, or what is to be said in a turn.

        Args:
            session: empty for a new one.

        Raises:
            UserError: there is no such command, or a member may not give it.
        """
        own = session or new_session_id()
        parsed = parse_command(text)
        if parsed is not None and parsed[0] == HELP and find_command(self._slash.commands, HELP) is None:
            found: CommandCall | RunSkill | UnknownCommand | None = CommandCall(
                _help(await self._available_commands()), ""
            )
        else:
            found = await self._slash.resolve(text, session_id=own, platform=PLATFORM)
        match found:
            case None:
                return text
            case RunSkill(message):
                return message
            case UnknownCommand():
                raise UserError(found.reply(HELP, *CLIENT_COMMANDS), exit_status=EXIT_USAGE)
        name = found.command.name
        if not self._is_open_to_members(name):
            raise UserError(
                f"/{name} is for the agent's operator", hint="/help lists what members of the group may give."
            )
        if name in SESSION_COMMANDS and not session:
            raise UserError(f"/{name} is about a session, and none is open", hint="Say something first, or give -c.")
        if not session:
            self._new_sessions[own] = principal
            while len(self._new_sessions) > MAX_NEW_SESSIONS:
                self._new_sessions.popitem(last=False)
        scope = self._slash.scope(own, PLATFORM, APPROVER, principal=principal)
        return MemberCommand(CommandConversation(self._slash, found, scope, ""), found.command.during_turn)

    def _is_open_to_members(self, name: str) -> bool:
        return name in SESSION_COMMANDS or self._slash.commands.owner(name) != BUILTIN

    async def _available_commands(self) -> list[tuple[str, str]]:
        """Return what members may give, with descriptions: commands, then skills."""
        commands = dict(self._slash.commands.items())
        rows = [(f"{n} {c.args_hint}", c.description) for n, c in commands.items() if self._is_open_to_members(n)]
        skills = await self._slash.bridge.run(self._slash.skills.offered, PLATFORM)
        rows += [(f"{n} [what to do]", skill.document.description) for n, skill in skills.items() if n not in commands]
        return [(name.rstrip(), text) for name, text in sorted([*rows, *CLIENT_COMMANDS.items(), (HELP, "this list")])]


def _help(rows: list[tuple[str, str]]) -> SlashCommand:
    width = max(len(name) for name, _ in rows)
    told = "\n".join(f"  /{name:<{width}}  {text}" for name, text in rows)
    return SlashCommand(HELP, lambda arguments: told)
