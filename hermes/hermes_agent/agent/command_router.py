"""Command lines of a conversation: what a line that begins with `/` means, and how its command runs.

A name is looked up among the commands of the agent and of plugins, then among quick commands, bundles, prompts and
skills. In the console the beginning
of a name is enough if only one name begins so. Source: plugin contract §7.2, §7.3.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.agent.quick_commands import QuickCommands
from hermes_agent.commands import CommandOutcome, CommandTable, HelpRow, parse_command, run_command
from hermes_agent.contracts.command import SlashCommand, Where
from hermes_agent.core.errors import CommandFailed
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.core.secrecy import MASK
from hermes_agent.core.text import nearest_name
from hermes_agent.hooks import HookBus
from hermes_agent.policy import Approvals, Approver
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import LOCAL
from hermes_agent.skills.skill_commands import SkillCommands
from hermes_agent.tools import CallScope, use_scope


@lazy_dataclass(frozen=True, slots=True)
class CommandCall:
    """A command to run."""

    command: SlashCommand
    arguments: str
    typed: str = ""
    """The name or alias that the user typed."""


@lazy_dataclass(frozen=True, slots=True)
class RunSkill:
    """A turn to run with this message: the text of a skill."""

    message: str


@lazy_dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A command line with a name that the front end does not have. `known`: the names that it has."""

    name: str
    known: tuple[str, ...]

    def reply(self, sign: str = "/") -> str:
        """Return the answer. `sign`: what commands begin with in this front end."""
        near = nearest_name(self.name, self.known)
        hint = f" Did you mean {sign}{near}?" if near else ""
        return f"There is no command {sign}{self.name}.{hint} {sign}help lists them."


@lazy_dataclass(slots=True, eq=False, repr=False)
class CommandRouter:
    """Resolves and runs the command lines of a host.

    Attributes:
        cwd: the working directory of tools that a command calls when its session is not open.
    """

    commands: CommandTable
    skills: SkillCommands
    bridge: Bridge
    injected: InjectedMessages
    hooks: HookBus
    quick: QuickCommands
    cwd: Path
    approval_timeout_s: float
    approvals_off: bool = False

    def rows(self, where: Where, platform: str) -> list[HelpRow]:
        """Return the rows of quick commands, bundles, prompts and skills for help and completion; in a worker."""
        rows = [] if where == "socket" else self.quick.rows()
        found = self.skills.offered(platform)
        rows += [HelpRow(name, self.skills.hint(skill), skill.document.description) for name, skill in found.items()]
        known = {row.name: row for row in reversed(rows)}
        return [row for name, row in known.items() if self.commands.find(name, where) is None]

    async def resolve(
        self, line: str, *, where: Where, session_id: str, platform: str, prefixes: bool = False
    ) -> CommandCall | RunSkill | UnknownCommand | None:
        """Return the meaning of a line, or None if it is no command.

        Args:
            where: the front end in which the line was written.
            prefixes: whether the beginning of a name is enough.
        """
        parsed = parse_command(line)
        if parsed is None:
            return None
        name, arguments = parsed
        command = self.commands.find(name, where)
        if command is not None:
            return CommandCall(command, arguments, name)
        if self.quick.find(name) is not None and where != "socket":  # members of a group run no shell of the operator
            return await self._quick(name, arguments, where=where, session_id=session_id, platform=platform)

        def message(chosen: str) -> str | None:
            return self.skills.message(chosen, arguments, session_id=session_id, platform=platform)

        text = await self.bridge.run(message, name)
        shown = parse_command(redactor.mask_known(line))  # a secret is known in its own case only
        if text is None and prefixes and shown is not None and shown[0] == name:  # a secret's beginning is no name
            quick = [row.name for row in self.quick.rows()]
            own = await self.bridge.run(self.skills.own_names, platform)
            longer = self.commands.find_by_prefix(name, where, (*own, *quick))
            if longer is None:
                slugs = await self.bridge.run(self.skills.offered, platform)
                longer = self.commands.find_by_prefix(name, where, (*slugs, *quick))
            if longer is not None and self.quick.find(longer) is not None and where != "socket":
                return await self._quick(longer, arguments, where=where, session_id=session_id, platform=platform)
            command = None if longer is None else self.commands.find(longer, where)
            if command is not None:
                return CommandCall(command, arguments, name)
            text = None if longer is None else await self.bridge.run(message, longer)
        if text is not None:
            return RunSkill(text)
        why = self.commands.why_absent(name)
        if why:  # every front end answers it like a command

            def refuse(raw_args: str) -> str:
                raise CommandFailed(f"/{name} is not there: {why}")

            return CommandCall(SlashCommand(name, refuse), arguments)
        return UnknownCommand(
            MASK if shown is None else shown[0], tuple(each.name for each in self.commands.commands(where))
        )

    async def _quick(
        self, name: str, arguments: str, *, where: Where, session_id: str, platform: str
    ) -> CommandCall | RunSkill | UnknownCommand | None:
        """Return the meaning of a quick command; an alias of an alias is unknown."""
        target = self.quick.alias_target(name)
        if not target:
            return self.quick_call(name, arguments)
        parsed = parse_command(target)
        if parsed is None or (self.quick.find(parsed[0]) is not None and self.quick.alias_target(parsed[0])):
            return UnknownCommand(name, tuple(each.name for each in self.commands.commands(where)))
        line = f"{target} {arguments}".strip()
        return await self.resolve(line, where=where, session_id=session_id, platform=platform)

    def quick_call(self, name: str, arguments: str) -> CommandCall:
        """Return the call of a quick command that is no alias."""
        return CommandCall(SlashCommand(name, partial(self.quick.answer, name), during_turn=True), arguments, name)

    def scope(self, session_id: str, platform: str, approver: Approver, *, principal: str = LOCAL) -> CallScope:
        """Return the scope of a command that runs outside a turn; messages that it injects wait for one.

        Args:
            principal: of the user who runs the command; tools that it calls show what that user may see.
        """
        self.injected.open(session_id)
        return CallScope(
            session_id=session_id,
            task_id=session_id,
            turn_id="",
            cwd=self.cwd,
            approvals=Approvals(approver, timeout_s=self.approval_timeout_s, off=self.approvals_off),
            platform=platform,
            principal=principal,
        )

    async def announce(self, called: CommandCall, scope: CallScope, session_key: str = "") -> None:
        """Call `pre_command` before a command runs in the session of `scope`.

        Args:
            session_key: the key of a chat; else it is made of platform and session.
        """
        hooks = self.hooks
        if not hooks.has("pre_command"):
            return
        keywords = {"command": called.command.name, "alias_used": called.typed or called.command.name}
        keywords |= {"args": called.arguments, "args_raw": called.arguments, "session_id": scope.session_id}
        keywords |= {"session_key": session_key or f"{scope.platform}:{scope.session_id}", "platform": scope.platform}
        keywords["surface"] = "cli" if scope.platform == "cli" else "gateway"
        # tools that a callback calls, and messages that it injects, belong to this session
        with use_scope(scope):
            steps = hooks.steps("pre_command", dict(keywords))
            await self.bridge.run_steps(steps, shortest_s=hooks.shortest_s("pre_command"))

    async def run(self, called: CommandCall, scope: CallScope) -> str | None:
        """Return the answer of `try_run`, be it an error or not."""
        return (await self.try_run(called, scope)).text

    async def try_run(self, called: CommandCall, scope: CallScope) -> CommandOutcome:
        """Run a command, in parallel with a turn of the same session; return its answer without known secrets.

        Args:
            scope: for the tools that the command calls and the messages that it injects.
        """
        with use_scope(scope):
            answer = await run_command(called.command, called.arguments, self.bridge)
        return answer._replace(text=redactor.mask_known(answer.text)) if answer.text else answer
