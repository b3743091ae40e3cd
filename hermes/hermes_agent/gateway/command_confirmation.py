"""Confirmations of slash commands in chats, and operator commands.

Operator commands are restart, home channel and those of `quick_commands`.

The question is sent with buttons if the adapter supports them (`send_slash_confirm`), otherwise as a text. A button is
the command `/approve ID`, `/always ID` or `/cancel ID`. Without an id, these commands answer the question of the
session; `/approve` and `/deny` answer a question of a tool if it was asked later. Only the sender of the command
answers, within `approvals.gateway_timeout`; confirmations outlive a restart. After a crash, a command with sent buttons
is not confirmed again. Source: plugin contract §7.1, §8.2.2, §11.2, §12 (`approvals`).
"""

from __future__ import annotations

import json
import logging
import threading

from hermes_agent.adapters.config import HomeChannel
from hermes_agent.adapters.events import MessageEvent, SessionSource, as_send_result
from hermes_agent.adapters.questions import CONFIRM
from hermes_agent.adapters.sender import reply_metadata
from hermes_agent.config.edit import set_value
from hermes_agent.contracts.command import Confirmation, SlashCommand
from hermes_agent.core.calls import call_supported
from hermes_agent.core.errors import UserError
from hermes_agent.delivery import ClaimedMessage, InboundMessage, OutboundReply, ReplyTarget
from hermes_agent.gateway.access import Admission, may_run_command, principal
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_messages import from_payload, to_payload
from hermes_agent.gateway.chat_routes import ChatRouteStore, PendingConfirmation
from hermes_agent.gateway.chat_sessions import COMMAND_KEY, ChatSessions
from hermes_agent.gateway.dependencies import CommandInvocation, GatewayDeps

logger = logging.getLogger(__name__)

CHOICES = {"approve": "once", "once": "once", "always": "always", "cancel": "cancel", "deny": "cancel"}
SKIP_WORDS = frozenset({"now", "-y", "--yes"})
"""Arguments of a command that skip the question."""
SEND_S = 30.0
SENT = "confirmation_sent"
"""Note of the message in the inbox: its buttons were sent."""
NOT_OPEN = "That question is no longer open. Send the command again."
ONLY_INVOKER = "Only the sender of the command may answer that question."


class CommandConfirmations:
    """Confirmations of all chats, on the core loop."""

    def __init__(self, chats: ChatSessions) -> None:
        self._chats, self._deps = chats, chats.deps
        self._open: dict[str, PendingConfirmation] = {}
        self._before: dict[str, set[str]] = {}
        """Per session, ids of the tools' questions that were open when the confirmation was requested."""
        self._is_disabled = False  # until the next start, which reads the config

    async def restore(self) -> None:
        """Restore the confirmations that were open when the process ended, and drop expired ones.

        Questions of tools are asked again.
        """
        for confirm in await self._chats.store(ChatRouteStore.pending_confirmations):
            self._keep(confirm)
            if self._deps.clock() > confirm.until:
                await self._expire(confirm)
        for key in await self._chats.store(ChatRouteStore.chats_with_questions):
            self._deps.pending_approvals.mark_unanswered(key)

    async def _expire(self, confirm: PendingConfirmation) -> None:
        """Drop an expired confirmation; a later answer does not answer a question of a tool."""
        self._deps.pending_approvals.mark_unanswered(confirm.session_key)
        await self._drop(confirm)
        await self._chats.save_question(confirm.session_key)

    def is_awaited(self, name: str, key: str) -> bool:
        """Return whether a command answers a confirmation of a session."""
        return name in CHOICES and self._deps.pending_confirmations.get_pending(key) is not None

    def asker_of(self, value: str) -> str | None:
        """Return the id of the user whom a button with that value asks; None if it asks nothing that is open."""
        confirm = self._find(value.rpartition(" ")[2])
        return None if confirm is None else _source(from_payload(confirm.payload)).user_id

    async def ask(
        self,
        command: SlashCommand,
        arguments: str,
        message: ClaimedMessage,
        event: MessageEvent,
        connection: AdapterConnection,
        key: str,
    ) -> str | None:
        """Ask for a confirmation; return the question as a text, "" if buttons ask, or None if none is needed."""
        name, question = command.name, command.confirm
        if (
            question is None
            or self._is_disabled
            or not self._deps.settings.confirm
            or arguments.strip().lower() in SKIP_WORDS
        ):
            return None
        route = await self._chats.route(key)
        if route is None or await self._deps.agent.call_transcript("title", route.session_id) is None:
            return None  # the session is empty
        if message.notes.get(SENT):
            return ""  # sent by a previous process; `restore` has loaded it
        until = self._deps.clock() + self._deps.settings.approval_s
        confirm = PendingConfirmation(key, f"{CONFIRM}{message.id}", name, arguments, to_payload(event), until)
        await self._chats.store(ChatRouteStore.add_confirmation, confirm)
        self._keep(confirm)
        if await self._ask_with_buttons(confirm, question, event, connection):
            await message.save_notes(**{SENT: True})
            return ""
        prefix = getattr(connection.adapter, "typed_command_prefix", "/")
        return (
            f"❓ {question.title} {question.text}\n"
            f"{prefix}approve: yes. {prefix}always: yes, and do not ask again. {prefix}cancel: no. "
            f"({prefix}{name} now skips the question.)"
        )

    async def _ask_with_buttons(
        self, confirm: PendingConfirmation, question: Confirmation, event: MessageEvent, connection: AdapterConnection
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
            value = await call_supported(connection.adapter.send_slash_confirm, leading, offered)
            return as_send_result(value).success

        try:
            return await self._deps.agent.bridge.on_plugin(put(), deadline_s=SEND_S)
        except Exception as exc:  # noqa: BLE001 - plugin code: a text asks instead
            logger.warning("platform %s: send_slash_confirm failed, asking by text: %r", connection.name, exc)
            return False

    def _keep(self, confirm: PendingConfirmation) -> None:
        async def settle(choice: str) -> str:
            return await self._deps.agent.bridge.on_core(self._resolve(confirm, choice))

        self._open[confirm.session_key] = confirm
        self._before[confirm.session_key] = {
            item.id for item in self._deps.pending_approvals.questions_for(confirm.session_key)
        }
        self._deps.pending_confirmations.register(confirm.session_key, confirm.confirm_id, confirm.command, settle)

    async def take_answer(self, name: str, arguments: str, event: MessageEvent, key: str) -> str | None:
        """Return the reply to a command that answers a confirmation; None if it answers none."""
        choice, confirm_id = CHOICES.get(name), arguments.strip()
        if choice is None or (confirm_id and not confirm_id.startswith(CONFIRM)):
            return None
        if not confirm_id:
            pending = self._deps.pending_confirmations.get_pending(key)
            if pending is None:
                return None
            confirm = self._find(pending["confirm_id"])
            if confirm is None:  # a confirmation of a plugin
                return await self._deps.pending_confirmations.resolve(key, pending["confirm_id"], choice) or ""
            if (
                name in ("approve", "deny")
                and {item.id for item in self._deps.pending_approvals.questions_for(key)} - self._before[key]
            ):
                return None
        else:
            confirm = self._find(confirm_id)
        if confirm is None or self._deps.clock() > confirm.until:
            if confirm is not None:
                await self._expire(confirm)
            return NOT_OPEN if confirm_id else None
        if principal(_source(from_payload(confirm.payload))) != principal(_source(event)):
            return ONLY_INVOKER if confirm_id else None
        reply = await self._deps.pending_confirmations.resolve(confirm.session_key, confirm.confirm_id, choice)
        return NOT_OPEN if reply is None else reply

    async def _resolve(self, confirm: PendingConfirmation, choice: str) -> str:
        """Run or drop the confirmed command.

        The confirmation is deleted last. After a crash in between, the answer is served again, and the inbox accepts
        the command's message once.
        """
        if self._open.get(confirm.session_key) is not confirm or self._deps.clock() > confirm.until:
            return NOT_OPEN
        reply = "Cancelled."
        if choice != "cancel":
            event = from_payload(confirm.payload)
            reply = await self._disable(event) if choice == "always" else ""
            event.text = f"/{confirm.command} {confirm.arguments}".strip()
            event.metadata["confirmed"] = True
            await self._enqueue(confirm, event)
        await self._drop(confirm)
        return reply

    async def _enqueue(self, confirm: PendingConfirmation, event: MessageEvent) -> None:
        source = _source(event)
        command = self._deps.slash.commands.find(confirm.command, "chat")
        during_turn = COMMAND_KEY if command is not None and command.during_turn else ""
        chat, conversation = source.chat_id, confirm.session_key + during_turn
        message = InboundMessage(
            source.platform.value, chat, confirm.confirm_id, conversation, principal(source), to_payload(event)
        )
        await self._deps.delivery.receive(message)

    async def _drop(self, confirm: PendingConfirmation) -> None:
        if self._open.get(confirm.session_key) is confirm:
            del self._open[confirm.session_key], self._before[confirm.session_key]
            pending = self._deps.pending_confirmations.get_pending(confirm.session_key)
            if pending is not None and pending["confirm_id"] == confirm.confirm_id:
                self._deps.pending_confirmations.clear(confirm.session_key)
        await self._chats.store(ChatRouteStore.remove_confirmation, confirm.confirm_id)

    async def _disable(self, event: MessageEvent) -> str:
        """Disable confirmations permanently, for all users; return the reply."""
        source = _source(event)
        connection = self._chats.connections[source.platform.value]
        if not may_run_command(
            "approve", "known", source, Admission(event.metadata.get("admitted", "")), connection.config
        ):
            return "The question stays enabled: you may not change settings."
        keys = ("approvals", "destructive_slash_confirm")
        try:
            await self._deps.agent.bridge.run(set_value, self._deps.home, keys, False)
        except (UserError, OSError) as exc:
            return f"The question stays enabled: {exc}"
        self._is_disabled = True
        return f"The question is disabled (`{'.'.join(keys)}` is now false)."

    def _find(self, confirm_id: str) -> PendingConfirmation | None:
        open_now = list(self._open.values())  # adapters call this from the thread of their loop
        return next((item for item in open_now if item.confirm_id == confirm_id), None)


def _source(event: MessageEvent) -> SessionSource:
    assert event.source is not None
    return event.source


RESTARTED = "The agent has restarted. Interrupted turns resume."


async def restart(deps: GatewayDeps, invocation: CommandInvocation) -> str:
    """Restart the daemon; the chat gets a message when it is back."""
    if deps.restart is None:
        return "This process cannot be restarted: it is no daemon."
    source = invocation.source
    deps.restart(json.dumps([invocation.connection.name, source.chat_id, source.thread_id or ""]))
    return "Restarting after the running turns."


def restart_notice(target: str) -> OutboundReply:
    """Return the message after a restart for the chat that requested it."""
    platform, chat, thread = (str(item) for item in json.loads(target))
    return OutboundReply(ReplyTarget(platform, chat, thread), ({"text": RESTARTED},))


async def set_home(deps: GatewayDeps, invocation: CommandInvocation) -> str:
    """Store this chat in the config as the home channel of its platform."""
    source, connection = invocation.source, invocation.connection
    home = HomeChannel(source.platform, source.chat_id, source.chat_name or "Home", source.thread_id)
    value = {name: item for name, item in home.to_dict().items() if item is not None and name != "platform"}
    await deps.agent.bridge.run(set_value, deps.home, ("platforms", connection.name, "home_channel"), value)
    connection.config.home_channel = home  # a reload then finds no change and keeps the connection
    entry = connection.entry
    variable = (entry.cron_deliver_env_var if entry is not None else "") or ""
    if variable and deps.environ.get(variable):
        return f"Stored, but {variable} is set and overrides it: messages without a target still go there."
    return "Messages without a target, such as those of scheduled jobs, now go to this chat."


async def run_quick(deps: GatewayDeps, name: str, arguments: str) -> str:
    """Run the shell command of a quick command and return its output.

    Raises:
        UserError: the entry has no command.
    """
    stopped = threading.Event()
    try:
        return await deps.agent.bridge.run(deps.slash.quick.run, name, arguments, stopped)
    finally:
        stopped.set()
