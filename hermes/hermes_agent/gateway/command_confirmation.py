"""Asking in a chat whether a slash command is meant. Source: plugin contract §8.2.2, §11.2, §12 (`approvals`).

The question goes out with buttons where the adapter has them (`send_slash_confirm`), else as a text. A button is
`/approve ID`, `/always ID` or `/cancel ID` of its presser; without an id these words are for the session's question,
`/approve` and `/deny` for that of a tool when it was put later.
Only who gave the command answers, until `approvals.gateway_timeout` is over; a restart forgets nothing. A command
whose buttons were sent is not asked about again when its message is served a second time, after a crash.

What operators do in a chat: restart the daemon, choose a platform's home, commands of their own (`quick_commands`).

Source: plugin contract §7.1.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from hermes_agent.adapters.config import HomeChannel
from hermes_agent.adapters.events import MessageEvent, SessionSource, as_send_result
from hermes_agent.adapters.questions import CONFIRM
from hermes_agent.adapters.sender import reply_metadata
from hermes_agent.config.edit import set_value
from hermes_agent.contracts.command import Confirmation, SlashCommand
from hermes_agent.core.calls import call_supported
from hermes_agent.core.errors import UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.delivery import ClaimedMessage, InboundMessage, OutboundReply, ReplyTarget
from hermes_agent.gateway.access import Admission, may_run_command, principal
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_messages import from_payload, to_payload
from hermes_agent.gateway.chat_routes import ChatRouteStore, PendingConfirmation
from hermes_agent.gateway.chat_sessions import COMMAND_KEY, ChatSessions
from hermes_agent.gateway.dependencies import CommandInvocation, GatewayDeps
from hermes_agent.system import processes

logger = logging.getLogger(__name__)

CHOICES = {"approve": "once", "once": "once", "always": "always", "cancel": "cancel", "deny": "cancel"}
SKIP_WORDS = frozenset({"now", "-y", "--yes"})
"""Arguments of such a command that say that it is meant."""
SEND_S = 30.0
SENT = "confirmation_sent"
"""Note kept with the message in the inbox: its buttons were sent."""
NOT_OPEN = "That question is not open any more. Give the command again."
ONLY_INVOKER = "Only who gave the command may answer that question."


class CommandConfirmations:
    """The questions of all chats. On the core loop."""

    def __init__(self, chats: ChatSessions) -> None:
        self._chats, self._works = chats, chats.deps
        self._open: dict[str, PendingConfirmation] = {}
        self._before: dict[str, set[str]] = {}
        """By session, what tools had asked when the question was put."""
        self._is_disabled = False  # the config is read at the next start

    async def restore(self) -> None:
        """Take up the questions that were open when the process ended, and forget those that nobody answered.

        Those of tools are put again, as new ones.
        """
        for confirm in await self._chats.store(ChatRouteStore.pending_confirmations):
            self._keep(confirm)
            if self._works.clock() > confirm.until:
                await self._expire(confirm)
        for key in await self._chats.store(ChatRouteStore.chats_with_questions):
            self._works.pending_approvals.mark_unanswered(key)

    async def _expire(self, confirm: PendingConfirmation) -> None:
        """Forget a question that nobody answered; an answer that comes later is for no question of a tool."""
        self._works.pending_approvals.mark_unanswered(confirm.session_key)
        await self._drop(confirm)
        await self._chats.save_question(confirm.session_key)

    def is_awaited(self, name: str, key: str) -> bool:
        """Say whether a command is the answer to a question of a session."""
        return name in CHOICES and self._works.pending_confirmations.get_pending(key) is not None

    def asker_of(self, value: str) -> str | None:
        """Return the id of who was asked with a button of that value; None when it asks nothing that is open."""
        confirm = self._find(value.rpartition(" ")[2])
        return None if confirm is None else _source(from_payload(confirm.payload)).user_id

    async def ask(
        self,
        command: SlashCommand,
        arguments: str,
        message: ClaimedMessage,
        event: MessageEvent,
        link: AdapterConnection,
        key: str,
    ) -> str | None:
        """Ask about a command. Return the question as a text: empty when buttons ask, None when nothing is asked."""
        name, question = command.name, command.confirm
        if (
            question is None
            or self._is_disabled
            or not self._works.settings.confirm
            or arguments.strip().lower() in SKIP_WORDS
        ):
            return None
        route = await self._chats.route(key)
        if route is None or await self._works.agent.call_transcript("title", route.session_id) is None:
            return None  # nothing was said yet
        if message.notes.get(SENT):
            return ""  # by a process that ended before it finished the message; unless it expired, `recover` kept it
        until = self._works.clock() + self._works.settings.approval_s
        confirm = PendingConfirmation(key, f"{CONFIRM}{message.id}", name, arguments, to_payload(event), until)
        await self._chats.store(ChatRouteStore.add_confirmation, confirm)
        self._keep(confirm)
        if await self._ask_with_buttons(confirm, question, event, link):
            await message.save_notes(**{SENT: True})
            return ""
        sign = getattr(link.adapter, "typed_command_prefix", "/")
        return (
            f"❓ {question.title} {question.text}\n"
            f"{sign}approve: yes. {sign}always: yes, and do not ask again. {sign}cancel: no. "
            f"({sign}{name} now asks nothing.)"
        )

    async def _ask_with_buttons(
        self, confirm: PendingConfirmation, question: Confirmation, event: MessageEvent, link: AdapterConnection
    ) -> bool:
        leading = (
            ("chat_id", _source(event).chat_id),
            ("title", question.title),
            ("message", question.text),
            ("session_key", confirm.session_key),
            ("confirm_id", confirm.confirm_id),
        )
        offered = {"metadata": reply_metadata(event) or None}

        async def put() -> bool:
            value = await call_supported(link.adapter.send_slash_confirm, leading, offered)
            return as_send_result(value).success

        try:
            return await self._works.agent.bridge.on_plugin(put(), deadline_s=SEND_S)
        except Exception as exc:  # noqa: BLE001 - a plugin's code: a text asks
            logger.warning("platform %s: send_slash_confirm failed, a text asks: %r", link.name, exc)
            return False

    def _keep(self, confirm: PendingConfirmation) -> None:
        async def settle(choice: str) -> str:
            return await self._works.agent.bridge.on_core(self._resolve(confirm, choice))

        self._open[confirm.session_key] = confirm
        self._before[confirm.session_key] = {
            one.id for one in self._works.pending_approvals.questions_for(confirm.session_key)
        }
        self._works.pending_confirmations.register(confirm.session_key, confirm.confirm_id, confirm.command, settle)

    async def take_answer(self, name: str, arguments: str, event: MessageEvent, key: str) -> str | None:
        """Take a command as the answer to a question; None when it is none. Return what is said to it."""
        choice, confirm_id = CHOICES.get(name), arguments.strip()
        if choice is None or (confirm_id and not confirm_id.startswith(CONFIRM)):
            return None
        if not confirm_id:
            pending = self._works.pending_confirmations.get_pending(key)
            if pending is None:
                return None
            confirm = self._find(pending["confirm_id"])
            if confirm is None:  # a plugin's own
                return await self._works.pending_confirmations.resolve(key, pending["confirm_id"], choice) or ""
            if (
                name in ("approve", "deny")
                and {one.id for one in self._works.pending_approvals.questions_for(key)} - self._before[key]
            ):
                return None
        else:
            confirm = self._find(confirm_id)
        if confirm is None or self._works.clock() > confirm.until:
            if confirm is not None:
                await self._expire(confirm)
            return NOT_OPEN if confirm_id else None
        if principal(_source(from_payload(confirm.payload))) != principal(_source(event)):
            return ONLY_INVOKER if confirm_id else None
        said = await self._works.pending_confirmations.resolve(confirm.session_key, confirm.confirm_id, choice)
        return NOT_OPEN if said is None else said

    async def _resolve(self, confirm: PendingConfirmation, choice: str) -> str:
        """Let what was asked about be done in its turn, or not.

        The question is forgotten last: after a kill in between the answer comes again, and the command's message is
        taken once.
        """
        if self._open.get(confirm.session_key) is not confirm or self._works.clock() > confirm.until:
            return NOT_OPEN
        said = "Left as it is."
        if choice != "cancel":
            event = from_payload(confirm.payload)
            said = await self._disable(event) if choice == "always" else ""
            event.text = f"/{confirm.command} {confirm.arguments}".strip()
            event.metadata["confirmed"] = True
            await self._enqueue(confirm, event)
        await self._drop(confirm)
        return said

    async def _enqueue(self, confirm: PendingConfirmation, event: MessageEvent) -> None:
        source = _source(event)
        command = self._works.slash.commands.find(confirm.command, "chat")
        during_turn = COMMAND_KEY if command is not None and command.during_turn else ""
        chat, conversation = source.chat_id, confirm.session_key + during_turn
        message = InboundMessage(
            source.platform.value, chat, confirm.confirm_id, conversation, principal(source), to_payload(event)
        )
        await self._works.delivery.receive(message)

    async def _drop(self, confirm: PendingConfirmation) -> None:
        if self._open.get(confirm.session_key) is confirm:
            del self._open[confirm.session_key], self._before[confirm.session_key]
            pending = self._works.pending_confirmations.get_pending(confirm.session_key)
            if pending is not None and pending["confirm_id"] == confirm.confirm_id:
                self._works.pending_confirmations.clear(confirm.session_key)
        await self._chats.store(ChatRouteStore.remove_confirmation, confirm.confirm_id)

    async def _disable(self, event: MessageEvent) -> str:
        """Turn the questions off for good, for everybody. Return what is said of it."""
        source = _source(event)
        link = self._chats.connections[source.platform.value]
        if not may_run_command("approve", "known", source, Admission(event.metadata.get("admitted", "")), link.config):
            return "It is asked again next time: you may not change the settings."
        keys = ("approvals", "destructive_slash_confirm")
        try:
            await self._works.agent.bridge.run(set_value, self._works.home, keys, False)
        except (UserError, OSError) as exc:
            return f"It is asked again next time: {exc}"
        self._is_disabled = True
        return f"It is not asked again ({'.'.join(keys)} is false now)."

    def _find(self, confirm_id: str) -> PendingConfirmation | None:
        open_now = list(self._open.values())  # adapters ask from their own loop's thread
        return next((one for one in open_now if one.confirm_id == confirm_id), None)


def _source(event: MessageEvent) -> SessionSource:
    assert event.source is not None
    return event.source


QUICK_TIMEOUT_S = 30.0
QUICK_OUTPUT_BYTES = 16_000
RESTARTED = "I am back. What was begun goes on."


async def restart(works: GatewayDeps, asked: CommandInvocation) -> str:
    """Restart the daemon; who asked is told when it is back."""
    if works.restart is None:
        return "Nothing restarts this process: it is no daemon."
    source = asked.source
    works.restart(json.dumps([asked.link.name, source.chat_id, source.thread_id or ""]))
    return "Restarting: what runs may finish first."


def restart_notice(told: str) -> OutboundReply:
    """Return what is said after a restart, to the chat that asked for it."""
    platform, chat, thread = (str(one) for one in json.loads(told))
    return OutboundReply(ReplyTarget(platform, chat, thread), ({"text": RESTARTED},))


async def set_home(works: GatewayDeps, asked: CommandInvocation) -> str:
    """Let this chat be where the platform's messages without an addressee go; kept in the config."""
    source, link = asked.source, asked.link
    home = HomeChannel(source.platform, source.chat_id, source.chat_name or "Home", source.thread_id)
    value = {name: one for name, one in home.to_dict().items() if one is not None and name != "platform"}
    await works.agent.bridge.run(set_value, works.home, ("platforms", link.name, "home_channel"), value)
    link.config.home_channel = home  # what a reload reads then is no change, and the platform stays connected
    entry = link.entry
    variable = (entry.cron_deliver_env_var if entry is not None else "") or ""
    if variable and works.environ.get(variable):
        return f"Kept, but {variable} is set and wins: messages without an addressee still go to what it names."
    return "Messages without an addressee (scheduled jobs, say) come here now."


def quick_command(values: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the entry of `quick_commands` for a command; None when there is none."""
    found = (values.get("quick_commands") or {}).get(name)
    return found if isinstance(found, Mapping) else None


async def run_quick(works: GatewayDeps, entry: Mapping[str, Any], name: str) -> str:
    """Run the shell command of an entry and return what it printed.

    Raises:
        UserError: it has none.
    """
    command = str(entry.get("command") or "")
    if not command:
        raise UserError(
            f"quick_commands.{name} has no command", hint="Give it `command`, or `type: alias` and `target`."
        )
    stopped = threading.Event()

    def run() -> processes.CommandResult:
        return processes.run(
            command,
            cwd=works.agent.settings.cwd,
            env=processes.tool_environment(works.environ),
            timeout_s=QUICK_TIMEOUT_S,
            output_limit_bytes=QUICK_OUTPUT_BYTES,
            cancelled=stopped,
        )

    try:
        done = await works.agent.bridge.run(run)
    finally:
        stopped.set()
    text = redactor((done.head + done.tail).decode("utf-8", errors="replace")).strip()
    status = f"\n(exit status {done.exit_code})" if done.exit_code else ""
    if done.timed_out:
        status = f"\n(ended after {QUICK_TIMEOUT_S:g} s: commands of quick_commands may take no longer)"
    return (text + status).strip() or "Done."
