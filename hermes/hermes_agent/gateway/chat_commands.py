"""Slash commands of chats, and the checks before any command runs in a chat.

Some commands run during a turn (`/stop`, `/approve`, `/status`, …), others after it.
Source: plugin contract §7.1, §7.3, §10.6.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.events import MessageEvent, SessionSource
from hermes_agent.agent.command_router import CommandCall, RunSkill
from hermes_agent.agent.session_commands import find_session, set_title
from hermes_agent.commands.table import MAX_MENU_NAME
from hermes_agent.config.settings import Settings
from hermes_agent.contracts.command import CommandHandler, Right, SlashCommand
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import new_id
from hermes_agent.core.registry import BUILTIN
from hermes_agent.delivery import ClaimedMessage, InboundMessage
from hermes_agent.gateway.access import Admission, may_run_command, principal
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_messages import to_payload
from hermes_agent.gateway.chat_routes import ChatRoute, ChatRouteStore
from hermes_agent.gateway.command_confirmation import CommandConfirmations, restart, run_quick, set_home
from hermes_agent.gateway.dependencies import CommandInvocation
from hermes_agent.models.request_options import change_model_text, describe_model
from hermes_agent.policy import QUESTION_PREFIX, Choice, NoApprover, Refusal
from hermes_agent.tools import CallScope

if TYPE_CHECKING:
    from hermes_agent.gateway.chat_sessions import ChatSessions


MAX_LIST_LENGTH = 300
"""Characters of a list of commands that fit into one line on every platform."""


class ChatCommands:
    """Handlers of the commands that chats run themselves, and runs commands in chats."""

    def __init__(self, chats: ChatSessions) -> None:
        self._chats = chats
        self._deps = chats.deps
        self._table = chats.deps.slash.commands
        self.confirmations = CommandConfirmations(chats)
        handlers: dict[str, CommandHandler] = {
            "help": self._help,
            "new": self._new,
            "stop": self._stop,
            "steer": self._require_text,
            "queue": self._require_text,
            "status": self._status,
            "whoami": self._whoami,
            "approve": self._approve,
            "deny": self._deny,
            "background": self._background,
            "model": self._model,
            "title": self._title,
            "resume": self._resume,
            "retry": self._retry,
            "sethome": partial(set_home, self._deps),
            "restart": partial(restart, self._deps),
        }
        self._table.bind("chat", handlers)

    def find(self, name: str) -> SlashCommand | None:
        """Return the command with that name or alias in chats."""
        return self._table.find(name, "chat")

    def canonical_name(self, name: str) -> str:
        """Return the name of a command in rights and hooks; commands of plugins keep the typed name."""
        command = self.find(name)
        return name if command is None or self._table.owner(command.name) != BUILTIN else command.name

    def is_command(self, name: str | None) -> bool:
        """Return whether a command of that name exists; a skill is no command, it starts a turn."""
        return name is not None and (self.find(name) is not None or self._quick(name) is not None)

    def alias_target(self, name: str | None) -> str:
        """Return the target of an alias of the operator (`quick_commands`); "" if it is no alias."""
        if name is None or self._quick(name) is None:
            return ""
        return self._deps.slash.quick.alias_target(name)

    def is_allowed_during_turn(self, name: str, key: str) -> bool:
        """Return whether a command runs during a turn of its chat."""
        if self.confirmations.is_awaited(name, key):
            return True
        command = self.find(name)
        return command.during_turn if command is not None else self._quick(name) is not None

    def _quick(self, name: str) -> Mapping[str, Any] | None:
        """Return the operator's command of that name; built-in commands and those of plugins win."""
        return None if self.find(name) is not None else self._deps.slash.quick.find(name)

    def menu(self) -> list[tuple[str, str]]:
        """Return name and description of the commands in a platform's menu."""
        quick = Settings(self._deps.values()).quick_commands or {}
        own = [(name.replace("-", "_"), str(e.get("description") or name)) for name, e in quick.items()]
        return list(
            {name: text for name, text in (*own, *self._table.menu("chat")) if len(name) <= MAX_MENU_NAME}.items()
        )

    async def run(
        self, message: ClaimedMessage, event: MessageEvent, connection: AdapterConnection, key: str
    ) -> str | RunSkill | None:
        """Run a command; return its answer, `RunSkill` to start a turn, or None for an unknown command."""
        assert event.source is not None
        name, arguments = event.get_command() or "", event.get_command_args()
        admission = Admission(event.metadata.get("admitted", ""))
        if event.metadata.get("confirmed"):
            return await self._run_command(name, arguments, event, connection, key, admission)
        answered = await self.confirmations.take_answer(name, arguments, event, key)
        if answered is not None:
            return answered
        refused = await self._check_rights(name, arguments, event, connection, key, admission)
        if isinstance(refused, str):
            return refused
        name, arguments = refused
        command = self.find(name)
        if command is not None and command.confirm is not None:
            question = await self.confirmations.ask(command, arguments, message, event, connection, key)
            if question is not None:
                return question
        return await self._run_command(name, arguments, event, connection, key, admission)

    async def _run_command(
        self,
        name: str,
        arguments: str,
        event: MessageEvent,
        connection: AdapterConnection,
        key: str,
        admission: Admission,
    ) -> str | RunSkill | None:
        assert event.source is not None
        command, entry = self.find(name), self._quick(name)
        if command is not None and not command.is_bound:
            return await self.call(CommandCall(command, arguments, name), event, connection, key)
        slash = self._deps.slash
        if (command or entry) is not None and slash.hooks.has("pre_command"):
            called = CommandCall(command, arguments, name) if command else slash.quick_call(name, arguments)
            if not called.command.during_turn or key not in self._chats.running:
                await slash.announce(called, await self._scope(event, connection, key), key)
        try:
            if command is not None:
                answer: str | RunSkill | None = await command.handler(
                    CommandInvocation(command.name, arguments, event, event.source, key, connection, admission)
                )
                return answer
            return None if entry is None else await run_quick(self._deps, name, arguments)
        except (UserError, OSError, ValueError) as error:
            return f"⚠️ {error}"

    async def call(self, called: CommandCall, event: MessageEvent, connection: AdapterConnection, key: str) -> str:
        """Run a command of all front ends; return its answer, or "" for none."""
        route = await self._chats.route(key)
        assert event.source is not None
        if route is None and called.command.starts_session and called.arguments:
            await self._chats.start_session(event.source, key, None, "")
        scope = await self._scope(event, connection, key)
        await self._deps.slash.announce(called, scope, key)
        return await self._deps.slash.run(called, scope) or ""

    async def _scope(self, event: MessageEvent, connection: AdapterConnection, key: str) -> CallScope:
        """Return the scope of a command in a chat."""
        assert event.source is not None
        route, approver = await self._chats.route(key), NoApprover("by a command in a chat")
        session = route.session_id if route is not None else key
        return self._deps.slash.scope(session, connection.name, approver, principal=principal(event.source))

    async def _check_rights(
        self,
        name: str,
        arguments: str,
        event: MessageEvent,
        connection: AdapterConnection,
        key: str,
        admission: Admission,
    ) -> str | tuple[str, str]:
        """Check rights and call hooks; return the refusal, or name and arguments of the command to run."""
        assert event.source is not None
        prefix, command = _sign(connection), self.find(name)
        canonical = self.canonical_name(name)
        right: Right = "anyone" if self._quick(name) is None else "known"  # it runs a shell command
        if command is not None:
            right = command.right
        if not may_run_command(canonical, right, event.source, admission, connection.config):
            return f"You may not run {prefix}{name} here. {prefix}whoami lists your commands."
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
            answer = decision if isinstance(decision, dict) else {}
            match answer.get("decision"):
                case "deny":
                    return str(answer.get("message") or f"Command `/{name}` was blocked by a hook.")
                case "handled":
                    return str(answer.get("message") or "")
                case "rewrite":
                    name = str(answer.get("command_name") or name).lstrip("/").lower()
                    return name, str(answer.get("raw_args", arguments))
                case "allow":
                    break
        return name, arguments

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _require_text(self, invocation: CommandInvocation) -> str:
        """Answer `/queue` and `/steer` without a text; `Intake` handles those with one."""
        return f"The text is missing: /{invocation.name} TEXT"

    async def _help(self, invocation: CommandInvocation) -> str:
        def is_allowed(name: str, right: Right = "anyone") -> bool:
            return may_run_command(name, right, invocation.source, invocation.admission, invocation.connection.config)

        prefix = _sign(invocation.connection)
        rows = self._table.help_rows(
            "chat", sign=prefix, is_allowed=lambda command: is_allowed(command.name, command.right)
        )
        own = [row.name for row in rows if self._table.owner(row.name) == BUILTIN]
        others = await self._deps.agent.bridge.run(self._deps.slash.rows, "chat", invocation.connection.name)
        rows += [row for row in others if is_allowed(row.name)]
        topic = (
            invocation.arguments.strip().lower() if invocation.event.get_command() != "start" else ""
        )  # payload of a link
        if topic not in ("", "all"):
            name = self.canonical_name(topic.lstrip(prefix))
            rows = [row for row in rows if row.name == name]
            if not rows:
                return f"There is no command {prefix}{name} here. {prefix}help lists the commands."
        elif not topic and getattr(invocation.connection.adapter, "sends_lines", False):
            return _short_help(prefix, own, [row.name for row in rows if row.name not in own])
        return "\n".join(f"{prefix}{f'{name} {hint}'.strip()}: {text}" for name, hint, text in rows)

    async def _new(self, invocation: CommandInvocation) -> str:
        running = self._chats.running.get(invocation.key)
        if running is not None:
            running.interrupt("new")
            await running.ended.wait()
        previous = await self._chats.route(invocation.key)
        route = await self._chats.start_session(invocation.source, invocation.key, previous, "new_session")
        return f"New session {route.session_id}."

    async def _stop(self, invocation: CommandInvocation) -> str:
        running = self._chats.running.get(invocation.key)
        background = (
            self._chats.background_turns(invocation.key) if invocation.arguments.strip().lower() == "all" else []
        )
        for turn in background:
            turn.interrupt("stopped")
        if running is None:
            return "Stopped." if background else "No turn is running."
        dropped = await running.drop_queued()  # before the interrupt, as its end starts them
        running.interrupt("stopped")
        return "Stopped." + (f" {dropped} waiting message{'s' * (dropped > 1)} dropped." if dropped else "")

    async def _status(self, invocation: CommandInvocation) -> str:
        route = await self._chats.route(invocation.key)
        running = self._chats.running.get(invocation.key)
        waiting = await self._deps.delivery.waiting(invocation.connection.name, invocation.key)
        lines = []
        if route is not None:
            title = await self._deps.agent.call_transcript("title", route.session_id)
            lines.append(f"Session: {route.session_id}" + (f" ({title})" if title else ""))
            lines.append(f"Since: {time.strftime('%Y-%m-%d %H:%M', time.localtime(route.began_at))}")
        else:
            lines.append("Session: none yet")
        lines.append(f"Model: {self._deps.agent.choose_model((route.model if route else '') or None).name}")
        seconds = int(time.time() - running.since) if running is not None else 0
        lines.append(f"Working for {seconds} s." if running is not None else "No turn is running.")
        if background := len(self._chats.background_turns(invocation.key)):
            lines.append(f"Background turns: {background}")
        if waiting:
            lines.append(f"Waiting messages: {waiting}")
        if questions := len(self._deps.pending_approvals.questions_for(invocation.key)):
            lines.append(f"Pending approvals: {questions}")
        return "\n".join(lines)

    async def _whoami(self, invocation: CommandInvocation) -> str:
        own = [command for command in self._table.commands("chat") if command.is_bound]
        allowed = [
            command.name
            for command in own
            if may_run_command(
                command.name, command.right, invocation.source, invocation.admission, invocation.connection.config
            )
        ]
        may_run_all = len(allowed) == len(own)
        what = "every command" if may_run_all else ", ".join(f"/{name}" for name in allowed)
        return f"{principal(invocation.source)} (allowed by: {invocation.admission.by})\nYou may run: {what}"

    async def _model(self, invocation: CommandInvocation) -> str:
        route = await self._chats.route(invocation.key)
        if not invocation.arguments:
            chosen = self._deps.agent.choose_model((route.model if route else "") or None)
            return f"Model: {describe_model(chosen)}"
        text = change_model_text(route.model if route is not None else "", invocation.arguments)
        chosen = self._deps.agent.choose_model(text or None)
        if route is None:
            route = await self._chats.start_session(invocation.source, invocation.key, None)
        await self._chats.store(ChatRouteStore.put, route._replace(model=text))
        return f"Model: {describe_model(chosen)}"

    async def _title(self, invocation: CommandInvocation) -> str:
        route = await self._chats.route(invocation.key)
        return await set_title(self._deps.agent, route.session_id if route is not None else "", invocation.arguments)

    async def _resume(self, invocation: CommandInvocation) -> str:
        if invocation.source.chat_type != "dm":
            return "Resume sessions in a direct chat: other users can read this one."
        owner, route = principal(invocation.source), await self._chats.route(invocation.key)
        chosen = await find_session(self._deps.agent, invocation.arguments, owner)
        if isinstance(chosen, str):
            return chosen
        now = self._deps.clock()
        model = route.model if route is not None else ""
        await self._chats.resume(
            ChatRoute(invocation.key, chosen.id, owner, invocation.source.to_dict(), model, now, now), route
        )
        return f"Resumed {chosen.id}" + (f": {chosen.title}" if chosen.title else ".")

    async def _retry(self, invocation: CommandInvocation) -> str | RunSkill:
        route = await self._chats.route(invocation.key)
        if route is None:
            return "There is no message to repeat."
        self._deps.agent.forget_sent(route.session_id)
        text = str(await self._deps.agent.call_transcript("drop_last_turn", route.session_id))
        return RunSkill(text) if text else "There is no message to repeat."

    async def _background(self, invocation: CommandInvocation) -> str:
        if not invocation.arguments:
            return "The task is missing: /background TEXT"
        payload = {**to_payload(invocation.event), "text": invocation.arguments, "media_urls": [], "media_types": []}
        number = new_id("background")[-6:]
        await self._deps.delivery.receive(
            InboundMessage(
                invocation.connection.name,
                invocation.source.chat_id,
                "",
                f"{invocation.key}&{number}",
                principal(invocation.source),
                payload,
            )
        )
        return f"Started in the background ({number})."

    # -- approvals -----------------------------------------------------------------------------------------------------

    async def _approve(self, invocation: CommandInvocation) -> str:
        words = invocation.arguments.lower().split()
        choice: Choice = "always" if "always" in words else "session" if "session" in words else "once"
        question_id = self._find_question(invocation, words)
        offered = self._is_offered(invocation, choice, question_id)
        problem = await self._answer(invocation, choice, everything="all" in words, question_id=question_id)
        return problem or (
            f"Allowed ({choice})." if offered else "Allowed (once): this call needs an approval each time."
        )

    async def _deny(self, invocation: CommandInvocation) -> str:
        first, _, rest = invocation.arguments.partition(" ")
        question_id = self._find_question(invocation, [first])
        reason = rest if question_id or first.lower() == "all" else invocation.arguments
        answer: Choice | Refusal = "deny"
        if reason.strip():
            answer = Refusal(f"BLOCKED: User denied this command. The user has NOT consented: {reason.strip()}")
        return (
            await self._answer(invocation, answer, everything=first.lower() == "all", question_id=question_id)
            or "Refused."
        )

    async def _answer(
        self, invocation: CommandInvocation, answer: Choice | Refusal, *, everything: bool, question_id: str
    ) -> str:
        """Answer a question of the session; in a group chat, users with approval rights may answer for others.

        Args:
            question_id: id of the question, from a button or code; no other question is answered then.

        Return the reason why no question was answered; "" on success.
        """
        waiting = self._deps.pending_approvals
        keys = self._answerable_sessions(invocation)
        if question_id:
            question = waiting.get(question_id)
            known = question is not None and question.session_key in keys
            return "" if known and waiting.answer(question_id, answer) else "That question is no longer open."
        key = next((key for key in keys if waiting.questions_for(key)), invocation.key)
        allows = answer != "deny" and not isinstance(answer, Refusal)
        if (
            waiting.questions_for(key)
            and allows
            and waiting.is_ambiguous(key)
            and not (everything and not waiting.has_unanswered(key))
        ):
            prefix = _sign(invocation.connection)
            open_ = "\n".join(f"{prefix}approve {item.code}: {item.text[:200]}" for item in waiting.questions_for(key))
            return f"There was another question before. Select the question:\n{open_}"
        if waiting.answer_session(key, answer, everything=everything):
            return ""
        waiting.clear_unanswered(key)
        await self._chats.save_question(key)
        return "No approval is pending."

    def _find_question(self, invocation: CommandInvocation, words: list[str]) -> str:
        """Return the id of the named question, by the id of a button or by its code; "" if there is none."""
        if found := next((word for word in words if word.startswith(QUESTION_PREFIX)), ""):
            return found
        named = (
            self._deps.pending_approvals.find_by_code(key, word)
            for word in words
            for key in self._answerable_sessions(invocation)
        )
        return next((question.id for question in named if question is not None), "")

    def _answerable_sessions(self, invocation: CommandInvocation) -> list[str]:
        """Return the sessions with questions that this user may answer."""
        keys = [invocation.key]
        if invocation.admission.is_known and invocation.source.chat_type != "dm":
            here = [r for r in self._chats.running.values() if _is_same_chat(r.event, invocation.source)]
            keys += [key for key, running in self._chats.running.items() if running in here and key != invocation.key]
        return keys

    def _is_offered(self, invocation: CommandInvocation, choice: Choice, question_id: str) -> bool:
        """Return whether the question offers an answer; a closed question offers all answers."""
        waiting = self._deps.pending_approvals
        found = (
            waiting.get(question_id)
            if question_id
            else next((q for key in self._answerable_sessions(invocation) for q in waiting.questions_for(key)), None)
        )
        return found is None or not found.choices or choice in found.choices


def _sign(connection: AdapterConnection) -> str:
    """Return the prefix of commands on a platform."""
    return str(getattr(connection.adapter, "typed_command_prefix", "/"))


def _short_help(prefix: str, own: list[str], others: list[str]) -> str:
    """Return a help text of three lines, for a platform that sends each line as a message."""
    lines = [f"Commands: {_join_names(prefix, own)}"]
    if others:
        lines.append(f"Plugins and skills: {_join_names(prefix, others)}")
    return "\n".join([*lines, f"{prefix}help COMMAND describes a command, {prefix}help all describes all of them."])


def _join_names(prefix: str, names: list[str]) -> str:
    """Return the names in one line; of too many, the first names and the number of the others."""
    shown = list(names)
    while len(text := " ".join(prefix + name for name in shown)) > MAX_LIST_LENGTH:
        shown.pop()
    return text + (f" and {len(names) - len(shown)} more" if len(shown) < len(names) else "")


def _is_same_chat(event: MessageEvent, source: SessionSource) -> bool:
    other: Any = event.source
    return other is not None and (other.platform, other.chat_id, other.thread_id) == (
        source.platform,
        source.chat_id,
        source.thread_id,
    )
