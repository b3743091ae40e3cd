"""Slash commands in chats: those that only chats have, and the checks before any of them runs.

Some are answered while a turn runs (`/stop`, `/approve`, `/status`, …), the others after it. Source: plugin contract
§7.1, §7.3, §10.6.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.events import MessageEvent, SessionSource
from hermes_agent.agent.command_router import CommandCall, RunSkill
from hermes_agent.agent.session_commands import find_session, set_title
from hermes_agent.commands import HelpRow
from hermes_agent.commands.table import MAX_MENU_NAME
from hermes_agent.contracts.command import Confirmation, Right, SlashCommand, Where
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import new_id
from hermes_agent.core.registry import BUILTIN
from hermes_agent.delivery import ClaimedMessage, InboundMessage
from hermes_agent.gateway.access import Admission, may_run_command, principal
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_messages import to_payload
from hermes_agent.gateway.chat_routes import ChatRoute, ChatRouteStore
from hermes_agent.gateway.command_confirmation import CommandConfirmations, quick_command, restart, run_quick, set_home
from hermes_agent.gateway.dependencies import CommandInvocation
from hermes_agent.policy import QUESTION_PREFIX, Choice, NoApprover, Refusal

if TYPE_CHECKING:
    from hermes_agent.gateway.chat_sessions import ChatSessions


CHAT: frozenset[Where] = frozenset({"chat"})
NEW_SESSION = Confirmation("A new session?", "It ends this one and stops what runs.")
MAX_LIST_LENGTH = 300
"""Characters of a list of commands that fit into one line everywhere."""


class ChatCommands:
    """Runs the commands of chats; declares those that only chats have."""

    def __init__(self, chats: ChatSessions) -> None:
        self._chats = chats
        self._deps = chats.deps
        self._table = chats.deps.slash.commands
        self.confirmations = CommandConfirmations(chats)
        for command in self._declarations():
            self._table.register(command)

    def _declarations(self) -> tuple[SlashCommand, ...]:
        during_turn = partial(SlashCommand, where=CHAT)
        between_turns = partial(SlashCommand, where=CHAT, during_turn=False)
        return (
            during_turn(
                "help", self._help, "List the commands", "[all|COMMAND]", aliases=("commands", "start"), right="always"
            ),
            during_turn(
                "new",
                self._new,
                "Start a new session; `now` asks nothing first",
                "[now]",
                aliases=("reset", "clear"),
                confirm=NEW_SESSION,
            ),
            during_turn("stop", self._stop, "Stop the agent (all: in the background, too)", "[all]", right="always"),
            between_turns("steer", self._require_text, "Add something to the running turn", "TEXT"),
            between_turns("queue", self._require_text, "Say something after the running turn", "TEXT", aliases=("q",)),
            during_turn("status", self._status, "Show the session, the model, and what runs", right="always"),
            during_turn(
                "whoami", self._whoami, "Show who you are here, and which commands you may run", right="always"
            ),
            during_turn("approve", self._approve, "Allow what was asked", "[CODE|all] [session|always]", right="known"),
            during_turn("deny", self._deny, "Refuse what was asked", "[all] [REASON]", right="always"),
            during_turn(
                "background",
                self._background,
                "Work on something in a session of its own",
                "TEXT",
                aliases=("bg", "btw"),
            ),
            between_turns("model", self._model, "Show this chat's model, or use another", "[NAME]", right="known"),
            between_turns("title", self._title, "Show or set the session's title", "[TEXT]"),
            between_turns("resume", self._resume, "List your sessions, or resume one", "[ID or TITLE]"),
            between_turns("retry", self._retry, "Ask the last question again"),
            during_turn(
                "sethome",
                partial(set_home, self._deps),
                "Send messages without an addressee to this chat",
                aliases=("set-home",),
                right="known",
            ),
            during_turn(
                "restart", partial(restart, self._deps), "Restart the agent; nothing that runs is lost", right="known"
            ),
        )

    def find(self, name: str) -> SlashCommand | None:
        """Return the command of that name or alias in chats."""
        return self._table.find(name, "chat")

    def canonical_name(self, name: str) -> str:
        """Return the name that a command has in lists of rights and in hooks; a plugin's is as it was typed."""
        command = self.find(name)
        return name if command is None or self._table.owner(command.name) != BUILTIN else command.name

    def is_command(self, name: str | None) -> bool:
        """Return whether there is a command of that name; a skill is none, it is a turn."""
        return name is not None and (self.find(name) is not None or self._quick(name) is not None)

    def alias_target(self, name: str | None) -> str:
        """Return the command that an alias of the operator (`quick_commands`) stands for; empty when it is none."""
        entry = None if name is None else self._quick(name)
        target = str(entry.get("target") or "") if entry is not None and entry.get("type") == "alias" else ""
        return f"/{target.lstrip('/')}" if target else ""

    def is_allowed_during_turn(self, name: str, key: str) -> bool:
        """Return whether a command is answered while a turn runs in its chat."""
        if self.confirmations.is_awaited(name, key):
            return True
        command = self.find(name)
        return command.during_turn if command is not None else self._quick(name) is not None

    def _quick(self, name: str) -> Mapping[str, Any] | None:
        """Return the operator's command of that name; the agent's own and those of plugins win."""
        return None if self.find(name) is not None else quick_command(self._deps.values(), name)

    def menu(self) -> list[tuple[str, str]]:
        """Return name and description of the commands that a platform's menu offers."""
        quick = self._deps.values().get("quick_commands") or {}
        own = [(name.replace("-", "_"), str(e.get("description") or name)) for name, e in quick.items()]
        return list(
            {name: text for name, text in (*own, *self._table.menu("chat")) if len(name) <= MAX_MENU_NAME}.items()
        )

    async def run(
        self, message: ClaimedMessage, event: MessageEvent, link: AdapterConnection, key: str
    ) -> str | RunSkill | None:
        """Run a command; `RunSkill` asks for a turn with this message, None means that there is no such command."""
        assert event.source is not None
        name, arguments = event.get_command() or "", event.get_command_args()
        admission = Admission(event.metadata.get("admitted", ""))
        if event.metadata.get("confirmed"):
            return await self._run_command(name, arguments, event, link, key, admission)
        answered = await self.confirmations.take_answer(name, arguments, event, key)
        if answered is not None:
            return answered
        refused = await self._check_rights(name, arguments, event, link, key, admission)
        if isinstance(refused, str):
            return refused
        name, arguments = refused
        command = self.find(name)
        if command is not None and command.confirm is not None:
            question = await self.confirmations.ask(command, arguments, message, event, link, key)
            if question is not None:
                return question
        return await self._run_command(name, arguments, event, link, key, admission)

    async def _run_command(
        self, name: str, arguments: str, event: MessageEvent, link: AdapterConnection, key: str, admission: Admission
    ) -> str | RunSkill | None:
        assert event.source is not None
        command, entry = self.find(name), self._quick(name)
        if command is not None and not command.is_of_one_front_end:
            return await self.call(CommandCall(command, arguments), event, link, key)
        try:
            if command is not None:
                answer: str | RunSkill | None = await command.handler(
                    CommandInvocation(command.name, arguments, event, event.source, key, link, admission)
                )
                return answer
            return None if entry is None else await run_quick(self._deps, entry, name)
        except (UserError, OSError, ValueError) as error:
            return f"⚠️ {error}"

    async def call(self, called: CommandCall, event: MessageEvent, link: AdapterConnection, key: str) -> str:
        """Run a command that other front ends have, too; return its answer, or "" for none."""
        route = await self._chats.route(key)
        session = route.session_id if route is not None else key
        assert event.source is not None
        approver = NoApprover("by a command in a chat")
        scope = self._deps.slash.scope(session, link.name, approver, principal=principal(event.source))
        await self._deps.slash.announce(called, scope)
        return await self._deps.slash.run(called, scope) or ""

    async def _check_rights(
        self, name: str, arguments: str, event: MessageEvent, link: AdapterConnection, key: str, admission: Admission
    ) -> str | tuple[str, str]:
        """Check the rights and call the hooks. Return the refusal, or name and arguments of the command to run."""
        assert event.source is not None
        sign, command = _sign(link), self.find(name)
        canonical = self.canonical_name(name)
        right: Right = "anyone" if self._quick(name) is None else "known"  # it runs a program
        if command is not None:
            right = command.right
        if not may_run_command(canonical, right, event.source, admission, link.config):
            return f"You may not give {sign}{name} here. {sign}whoami says what you may."
        context = {
            "platform": event.source.platform.value,
            "user_id": event.source.user_id,
            "session_key": key,
            "command": canonical,
            "raw_command": name,
            "args": arguments,
            "raw_args": arguments,
        }
        for decision in await self._chats.events.emit_collect(f"command:{canonical}", context):
            said = decision if isinstance(decision, dict) else {}
            match said.get("decision"):
                case "deny":
                    return str(said.get("message") or f"Command `/{name}` was blocked by a hook.")
                case "handled":
                    return str(said.get("message") or "")
                case "rewrite":
                    name = str(said.get("command_name") or name).lstrip("/").lower()
                    return name, str(said.get("raw_args", arguments))
                case "allow":
                    break
        return name, arguments

    # -- the session ---------------------------------------------------------------------------------------------

    async def _require_text(self, asked: CommandInvocation) -> str:
        """Answer `/queue` and `/steer` without a text; `Intake` takes those that have one."""
        return f"Say what: /{asked.name} TEXT"

    async def _help(self, asked: CommandInvocation) -> str:
        def is_allowed(name: str, right: Right = "anyone") -> bool:
            return may_run_command(name, right, asked.source, asked.admission, asked.link.config)

        sign, skills = _sign(asked.link), self._deps.slash.skills
        rows = self._table.help_rows(
            "chat", sign=sign, is_allowed=lambda command: is_allowed(command.name, command.right)
        )
        own = [row.name for row in rows if self._table.owner(row.name) == BUILTIN]
        known = await self._deps.agent.bridge.run(skills.offered, asked.link.name)
        others = [HelpRow(name, "[what to do]", skill.document.description) for name, skill in known.items()]
        quick = self._deps.values().get("quick_commands") or {}
        others += [HelpRow(n, "", one.get("description") or one.get("target") or "") for n, one in quick.items()]
        rows += [row for row in others if is_allowed(row.name)]
        said = asked.arguments.strip().lower() if asked.event.get_command() != "start" else ""  # a link's payload
        if said not in ("", "all"):
            wanted = self.canonical_name(said.lstrip(sign))
            rows = [row for row in rows if row.name == wanted]
            if not rows:
                return f"There is no command {sign}{wanted} here. {sign}help lists them."
        elif not said and getattr(asked.link.adapter, "sends_lines", False):
            return _short_help(sign, own, [row.name for row in rows if row.name not in own])
        return "\n".join(f"{sign}{f'{name} {hint}'.strip()}: {text}" for name, hint, text in rows)

    async def _new(self, asked: CommandInvocation) -> str:
        running = self._chats.running.get(asked.key)
        if running is not None:
            running.interrupt("new")
            await running.ended.wait()
        former = await self._chats.route(asked.key)
        route = await self._chats.start_session(asked.source, asked.key, former, "new_session")
        return f"New session {route.session_id}."

    async def _stop(self, asked: CommandInvocation) -> str:
        running = self._chats.running.get(asked.key)
        aside = self._chats.background_turns(asked.key) if asked.arguments.strip().lower() == "all" else []
        for one in aside:
            one.interrupt("stopped")
        if running is None:
            return "Stopped." if aside else "Nothing runs."
        dropped = await running.drop_queued()  # first: its end would begin with them
        running.interrupt("stopped")
        return "Stopped." + (f" {dropped} waiting message{'s' * (dropped > 1)} dropped." if dropped else "")

    async def _status(self, asked: CommandInvocation) -> str:
        route = await self._chats.route(asked.key)
        running = self._chats.running.get(asked.key)
        waiting = await self._deps.delivery.waiting(asked.link.name, asked.key)
        lines = []
        if route is not None:
            title = await self._deps.agent.call_transcript("title", route.session_id)
            lines.append(f"Session: {route.session_id}" + (f" ({title})" if title else ""))
            lines.append(f"Since: {time.strftime('%Y-%m-%d %H:%M', time.localtime(route.began_at))}")
        else:
            lines.append("Session: none yet")
        lines.append(f"Model: {self._deps.agent.choose_model((route.model if route else '') or None).name}")
        seconds = int(time.time() - running.since) if running is not None else 0
        lines.append(f"Working for {seconds} s." if running is not None else "Nothing runs.")
        if aside := len(self._chats.background_turns(asked.key)):
            lines.append(f"In the background: {aside}")
        if waiting:
            lines.append(f"Waiting messages: {waiting}")
        if questions := len(self._deps.pending_approvals.questions_for(asked.key)):
            lines.append(f"Waiting for your approval: {questions}")
        return "\n".join(lines)

    async def _whoami(self, asked: CommandInvocation) -> str:
        own = [command for command in self._table.commands("chat") if command.where == CHAT]
        allowed = [
            command.name
            for command in own
            if may_run_command(command.name, command.right, asked.source, asked.admission, asked.link.config)
        ]
        everything = len(allowed) == len(own)
        what = "every command" if everything else ", ".join(f"/{name}" for name in allowed)
        return f"{principal(asked.source)} (let in by: {asked.admission.by})\nYou may give: {what}"

    async def _model(self, asked: CommandInvocation) -> str:
        route = await self._chats.route(asked.key)
        if not asked.arguments:
            return f"Model: {self._deps.agent.choose_model((route.model if route else '') or None).name}"
        name = asked.arguments.split()[0]
        chosen = self._deps.agent.choose_model(name)
        if route is None:
            route = await self._chats.start_session(asked.source, asked.key, None)
        await self._chats.store(ChatRouteStore.put, route._replace(model=name))
        return f"Model: {chosen.name}"

    async def _title(self, asked: CommandInvocation) -> str:
        route = await self._chats.route(asked.key)
        return await set_title(self._deps.agent, route.session_id if route is not None else "", asked.arguments)

    async def _resume(self, asked: CommandInvocation) -> str:
        if asked.source.chat_type != "dm":
            return "Sessions are resumed in a direct chat: others would read along here."
        who, route = principal(asked.source), await self._chats.route(asked.key)
        chosen = await find_session(self._deps.agent, asked.arguments, who)
        if isinstance(chosen, str):
            return chosen
        now = self._deps.clock()
        model = route.model if route is not None else ""
        await self._chats.resume(ChatRoute(asked.key, chosen.id, who, asked.source.to_dict(), model, now, now), route)
        return f"Going on with {chosen.id}" + (f": {chosen.title}" if chosen.title else ".")

    async def _retry(self, asked: CommandInvocation) -> str | RunSkill:
        route = await self._chats.route(asked.key)
        if route is None:
            return "There is nothing to ask again."
        self._deps.agent.forget_sent(route.session_id)
        said = str(await self._deps.agent.call_transcript("drop_last_turn", route.session_id))
        return RunSkill(said) if said else "There is nothing to ask again."

    async def _background(self, asked: CommandInvocation) -> str:
        if not asked.arguments:
            return "Say what to work on: /background TEXT"
        payload = {**to_payload(asked.event), "text": asked.arguments, "media_urls": [], "media_types": []}
        number = new_id("aside")[-6:]
        await self._deps.delivery.receive(
            InboundMessage(
                asked.link.name, asked.source.chat_id, "", f"{asked.key}&{number}", principal(asked.source), payload
            )
        )
        return f"Working on it in the background ({number})."

    # -- approvals -----------------------------------------------------------------------------------------------

    async def _approve(self, asked: CommandInvocation) -> str:
        words = asked.arguments.lower().split()
        choice: Choice = "always" if "always" in words else "session" if "session" in words else "once"
        of = self._find_question(asked, words)
        offered = self._is_offered(asked, choice, of)
        said = await self._answer(asked, choice, everything="all" in words, of=of)
        return said or (f"Allowed ({choice})." if offered else "Allowed (once): this call is asked about each time.")

    async def _deny(self, asked: CommandInvocation) -> str:
        first, _, rest = asked.arguments.partition(" ")
        of = self._find_question(asked, [first])
        reason = rest if of or first.lower() == "all" else asked.arguments
        answer: Choice | Refusal = "deny"
        if reason.strip():
            answer = Refusal(f"BLOCKED: User denied this command. The user has NOT consented: {reason.strip()}")
        return await self._answer(asked, answer, everything=first.lower() == "all", of=of) or "Refused."

    async def _answer(self, asked: CommandInvocation, answer: Choice | Refusal, *, everything: bool, of: str) -> str:
        """Answer what this chat's session asks; in a room, somebody who is known may answer for the others.

        Args:
            of: id of the question that is named, by a button or its code: no other is answered.

        Returns: why nothing was answered; empty when something was.
        """
        waiting = self._deps.pending_approvals
        keys = self._answerable_sessions(asked)
        if of:
            question = waiting.get(of)
            known = question is not None and question.session_key in keys
            return "" if known and waiting.answer(of, answer) else "That question is not open any more."
        key = next((key for key in keys if waiting.questions_for(key)), asked.key)
        allows = answer != "deny" and not isinstance(answer, Refusal)
        if (
            waiting.questions_for(key)
            and allows
            and waiting.is_ambiguous(key)
            and not (everything and not waiting.has_unanswered(key))
        ):
            sign = _sign(asked.link)
            open_ = "\n".join(f"{sign}approve {one.code}: {one.text[:200]}" for one in waiting.questions_for(key))
            return f"Another question was asked here before. Say which one you mean:\n{open_}"
        if waiting.answer_session(key, answer, everything=everything):
            return ""
        waiting.clear_unanswered(key)
        await self._chats.save_question(key)
        return "Nothing waits for an approval."

    def _find_question(self, asked: CommandInvocation, words: list[str]) -> str:
        """Return the id of the question that is named: by the id of a button, or by its code; empty when none is."""
        if found := next((word for word in words if word.startswith(QUESTION_PREFIX)), ""):
            return found
        named = (
            self._deps.pending_approvals.find_by_code(key, word)
            for word in words
            for key in self._answerable_sessions(asked)
        )
        return next((question.id for question in named if question is not None), "")

    def _answerable_sessions(self, asked: CommandInvocation) -> list[str]:
        """Return the sessions whose questions this user may answer."""
        keys = [asked.key]
        if asked.admission.is_known and asked.source.chat_type != "dm":
            here = [r for r in self._chats.running.values() if _is_same_chat(r.event, asked.source)]
            keys += [key for key, running in self._chats.running.items() if running in here and key != asked.key]
        return keys

    def _is_offered(self, asked: CommandInvocation, choice: Choice, of: str) -> bool:
        """Say whether the question that is answered offers an answer; one that is not open offers all."""
        waiting = self._deps.pending_approvals
        found = (
            waiting.get(of)
            if of
            else next((q for key in self._answerable_sessions(asked) for q in waiting.questions_for(key)), None)
        )
        return found is None or not found.choices or choice in found.choices


def _sign(link: AdapterConnection) -> str:
    """Return what commands begin with on a platform."""
    return str(getattr(link.adapter, "typed_command_prefix", "/"))


def _short_help(sign: str, own: list[str], others: list[str]) -> str:
    """Return three lines, for a platform on which each line is a message of its own."""
    lines = [f"Commands: {_join_names(sign, own)}"]
    if others:
        lines.append(f"Of plugins and skills: {_join_names(sign, others)}")
    return "\n".join([*lines, f"{sign}help COMMAND says what one does, {sign}help all lists them with what they do."])


def _join_names(sign: str, names: list[str]) -> str:
    """Return names in one line; of very many, the first ones and a number."""
    shown = list(names)
    while len(text := " ".join(sign + name for name in shown)) > MAX_LIST_LENGTH:
        shown.pop()
    return text + (f" and {len(names) - len(shown)} more" if len(shown) < len(names) else "")


def _is_same_chat(event: MessageEvent, source: SessionSource) -> bool:
    other: Any = event.source
    return other is not None and (other.platform, other.chat_id, other.thread_id) == (
        source.platform,
        source.chat_id,
        source.thread_id,
    )
