"""The agent's own slash commands in chats. Source: plugin contract §7.1, §7.3, §10.6.

Some are answered beside the turn that runs (`/stop`, `/approve`, `/status`, …), the others in their order.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_agent.adapters.events import MessageEvent, SessionSource
from hermes_agent.agent.command_router import CommandCall, RunSkill
from hermes_agent.agent.session_commands import find_session, set_title
from hermes_agent.commands import find_command
from hermes_agent.core.errors import UserError
from hermes_agent.core.messages import new_id
from hermes_agent.delivery import ClaimedMessage, InboundMessage
from hermes_agent.gateway.access import Admission, may_run_command, principal
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_messages import to_payload
from hermes_agent.gateway.chat_routes import ChatRoute
from hermes_agent.gateway.command_confirmation import CommandConfirmations, quick_command, restart, run_quick, set_home
from hermes_agent.policy import QUESTION_PREFIX, Choice, NoApprover, Refusal

if TYPE_CHECKING:
    from hermes_agent.gateway.chat_sessions import ChatSessions


ALIASES = {
    "reset": "new",
    "clear": "new",
    "compact": "compress",
    "bg": "background",
    "btw": "background",
    "q": "queue",
    "commands": "help",
    "start": "help",
    "set-home": "sethome",
}
MAX_MENU_NAME = 32
MAX_LIST_LENGTH = 300
"""Characters of a list of commands that fit into one line everywhere."""


class CommandInvocation(NamedTuple):
    """A command that somebody gave."""

    name: str
    arguments: str
    event: MessageEvent
    source: SessionSource
    key: str
    link: AdapterConnection
    admission: Admission


class _BuiltinCommand(NamedTuple):
    """One of the agent's own commands."""

    run: Callable[[CommandInvocation], Awaitable[str | RunSkill | None]]
    hint: str
    text: str
    during_turn: bool
    """Whether it is answered while a turn runs."""


def canonical_name(name: str) -> str:
    """Return the name that a command has in lists of rights, in hooks and here."""
    return ALIASES.get(name, name)


class ChatCommands:
    """They work on `ChatSessions`."""

    def __init__(self, chats: ChatSessions) -> None:
        self._chats = chats
        self._deps = chats.deps
        self.confirming = CommandConfirmations(chats, self)
        self.builtin_commands: dict[str, _BuiltinCommand] = {
            "help": _BuiltinCommand(self._help, "[all|COMMAND]", "what can be written here", True),
            "new": _BuiltinCommand(
                self._new, "[now]", "begin a new session (also /reset, /clear; now: without a question)", True
            ),
            "stop": _BuiltinCommand(
                self._stop, "[all]", "stop what the agent does (all: in the background, too)", True
            ),
            "steer": _BuiltinCommand(self._refuse_empty, "TEXT", "tell the running turn something", False),
            "queue": _BuiltinCommand(self._refuse_empty, "TEXT", "say something after the running turn", False),
            "status": _BuiltinCommand(self._status, "", "the session, the model, what runs", True),
            "whoami": _BuiltinCommand(self._whoami, "", "who you are here, and what you may do", True),
            "approve": _BuiltinCommand(self._approve, "[CODE|all] [session|always]", "allow what was asked", True),
            "deny": _BuiltinCommand(self._deny, "[all] [REASON]", "refuse what was asked", True),
            "background": _BuiltinCommand(self._background, "TEXT", "work on something beside this session", True),
            "model": _BuiltinCommand(self._model, "[NAME]", "show this chat's model, or go on with another", False),
            "title": _BuiltinCommand(self._title, "[TEXT]", "show or set the session's title", False),
            "resume": _BuiltinCommand(self._resume, "[ID or TITLE]", "list your sessions, or go on with one", False),
            "retry": _BuiltinCommand(self._retry, "", "ask the last question again", False),
            "sethome": _BuiltinCommand(
                partial(set_home, self._deps), "", "let messages without an addressee come here", True
            ),
            "restart": _BuiltinCommand(
                partial(restart, self._deps), "", "restart the agent; nothing that runs is lost", True
            ),
        }

    def is_command(self, name: str | None) -> bool:
        """Say whether somebody has a command of that name; a skill is none, it is a turn."""
        if name is None:
            return False
        known = (
            canonical_name(name) in self.builtin_commands or find_command(self._deps.slash.commands, name) is not None
        )
        return known or self._quick(name) is not None

    def alias_target(self, name: str | None) -> str:
        """Return the command that an alias of the operator (`quick_commands`) stands for; empty when it is none."""
        entry = None if name is None else self._quick(name)
        target = str(entry.get("target") or "") if entry is not None and entry.get("type") == "alias" else ""
        return f"/{target.lstrip('/')}" if target else ""

    def is_allowed_during_turn(self, name: str, key: str) -> bool:
        """Say whether a command is answered while a turn runs in its chat."""
        if self.confirming.is_awaited(name, key):
            return True
        own = self.builtin_commands.get(canonical_name(name))
        if own is not None:
            return own.during_turn
        command = find_command(self._deps.slash.commands, name)
        return command.during_turn if command is not None else self._quick(name) is not None

    def _quick(self, name: str) -> Mapping[str, Any] | None:
        """Return the operator's command of that name; the agent's own and those of plugins win."""
        if canonical_name(name) in self.builtin_commands or find_command(self._deps.slash.commands, name) is not None:
            return None
        return quick_command(self._deps.values(), name)

    def menu(self) -> list[tuple[str, str]]:
        """Return name and description of the commands that a service's menu offers: those that need nothing more.

        Names are what menus take: at most 32 characters, `_` for `-`.
        """
        own = {name: (one.hint, one.text) for name, one in self.builtin_commands.items()}
        others = {name: (c.args_hint, c.description) for name, c in self._deps.slash.commands.items()}
        quick = self._deps.values().get("quick_commands") or {}
        offered = {**{name: ("", str(one.get("description") or name)) for name, one in quick.items()}, **others, **own}
        return [
            (name.replace("-", "_"), text)
            for name, (hint, text) in offered.items()
            if len(name) <= MAX_MENU_NAME and (not hint or hint.startswith("["))
        ]

    async def run(
        self, message: ClaimedMessage, event: MessageEvent, link: AdapterConnection, key: str
    ) -> str | RunSkill | None:
        """Run a command; `RunSkill` asks for a turn with these words, None means that it is none of the agent's own."""
        assert event.source is not None
        name, arguments = event.get_command() or "", event.get_command_args()
        admission = Admission(event.metadata.get("admitted", ""))
        if event.metadata.get("confirmed"):
            return await self._run_builtin(name, arguments, event, link, key, admission)
        answered = await self.confirming.take_answer(name, arguments, event, key)
        if answered is not None:
            return answered
        refused = await self._check_rights(name, arguments, event, link, key, admission)
        if isinstance(refused, str):
            return refused
        name, arguments = refused
        question = await self.confirming.ask(canonical_name(name), arguments, message, event, link, key)
        return (
            question if question is not None else await self._run_builtin(name, arguments, event, link, key, admission)
        )

    async def _run_builtin(
        self, name: str, arguments: str, event: MessageEvent, link: AdapterConnection, key: str, admission: Admission
    ) -> str | RunSkill | None:
        assert event.source is not None
        own = self.builtin_commands.get(canonical_name(name))
        command = find_command(self._deps.slash.commands, name) if own is None else None
        if command is not None:
            return await self.call(CommandCall(command, arguments), event, link, key)
        entry = self._quick(name)
        if own is None and entry is None:
            return None
        try:
            if own is None and entry is not None:
                return await run_quick(self._deps, entry, name)
            assert own is not None
            return await own.run(
                CommandInvocation(canonical_name(name), arguments, event, event.source, key, link, admission)
            )
        except (UserError, OSError, ValueError) as error:
            return f"⚠️ {error}"

    async def call(self, called: CommandCall, event: MessageEvent, link: AdapterConnection, key: str) -> str:
        """Run a plugin's command, or another one that every front door has; empty is no answer."""
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
        """Ask the rights and the hooks. Return why nothing is done, or name and arguments of what is to be done."""
        assert event.source is not None
        sign = getattr(link.adapter, "typed_command_prefix", "/")
        strict = self._quick(name) is not None  # it runs a program
        if not may_run_command(canonical_name(name), event.source, admission, link.config, strict=strict):
            return f"You may not give {sign}{name} here. {sign}whoami says what you may."
        context = {
            "platform": event.source.platform.value,
            "user_id": event.source.user_id,
            "session_key": key,
            "command": canonical_name(name),
            "raw_command": name,
            "args": arguments,
            "raw_args": arguments,
        }
        for decision in await self._chats.events.emit_collect(f"command:{canonical_name(name)}", context):
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

    async def _refuse_empty(self, asked: CommandInvocation) -> str:
        """`/queue` and `/steer` are taken as what they say when they come in; here nothing was said."""
        return f"Say what: /{asked.name} TEXT"

    async def _help(self, asked: CommandInvocation) -> str:
        sign = getattr(asked.link.adapter, "typed_command_prefix", "/")
        commands, skills = self._deps.slash.commands, self._deps.slash.skills
        rows = [(name, own.hint, own.text) for name, own in self.builtin_commands.items()]
        rows += [
            (name, c.args_hint, c.description) for name, c in commands.items() if name not in self.builtin_commands
        ]
        known = await self._deps.agent.bridge.run(skills.offered, asked.link.name)
        rows += [(name, "[what to do]", skill.document.description) for name, skill in known.items()]
        quick = self._deps.values().get("quick_commands") or {}
        rows += [(n, "", one.get("description") or one.get("target") or "") for n, one in quick.items()]
        allowed = [row for row in rows if may_run_command(row[0], asked.source, asked.admission, asked.link.config)]
        said = asked.arguments.strip().lower() if asked.event.get_command() != "start" else ""  # a link's payload
        if said not in ("", "all"):
            wanted = canonical_name(said.lstrip(sign))
            found = [row for row in allowed if row[0] == wanted]
            if not found:
                return f"There is no command {sign}{wanted} here. {sign}help lists them."
            allowed = found
        elif not said and getattr(asked.link.adapter, "sends_lines", False):
            return self._short_help(sign, [name for name, _, _ in allowed])
        return "\n".join(f"{sign}{f'{name} {hint}'.strip()}: {text}" for name, hint, text in allowed)

    def _short_help(self, sign: str, names: list[str]) -> str:
        """Return three lines, for a platform on which each line is a message of its own."""
        own = [name for name in names if name in self.builtin_commands]
        more = [name for name in names if name not in self.builtin_commands]
        lines = [f"Commands: {_join_names(sign, own)}"]
        if more:
            lines.append(f"Of plugins and skills: {_join_names(sign, more)}")
        return "\n".join(
            [*lines, f"{sign}help COMMAND says what one does, {sign}help all lists them with what they do."]
        )

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
        allowed = [
            n for n in self.builtin_commands if may_run_command(n, asked.source, asked.admission, asked.link.config)
        ]
        everything = len(allowed) == len(self.builtin_commands)
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
        await self._chats.store("put", route._replace(model=name))
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
            sign = getattr(asked.link.adapter, "typed_command_prefix", "/")
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
