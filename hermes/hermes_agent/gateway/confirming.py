"""Asking in a chat whether a slash command is meant. Source: plugin contract §8.2.2, §11.2, §12 (`approvals`).

The question goes out with buttons where the adapter has them (`send_slash_confirm`), else as a text. A button is
`/approve ID`, `/always ID` or `/cancel ID` of its presser; without an id these words are for the session's question,
`/approve` and `/deny` for that of a tool when it was put later.
Only who gave the command answers, until `approvals.gateway_timeout` is over; a restart forgets nothing. A command
whose buttons were sent is not asked about again when its message is served a second time, after a crash.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hermes_agent.config.edit import set_value
from hermes_agent.contracts.platform.calling import call_with_what_it_takes
from hermes_agent.contracts.platform.messages import MessageEvent
from hermes_agent.contracts.platform.questions import CONFIRM
from hermes_agent.contracts.platform.reply import reply_metadata
from hermes_agent.contracts.platform.results import as_send_result
from hermes_agent.contracts.platform.source import SessionSource
from hermes_agent.core.errors import UserError
from hermes_agent.delivery import Claimed, Inbound
from hermes_agent.gateway.access import Admission, may_give, principal
from hermes_agent.gateway.chats import BESIDE, Chats
from hermes_agent.gateway.link import Link
from hermes_agent.gateway.payload import from_payload, to_payload
from hermes_agent.gateway.routes import Confirm

if TYPE_CHECKING:
    from hermes_agent.gateway.chat_commands import ChatCommands

__all__ = ["Confirming"]

logger = logging.getLogger(__name__)

ASKS = {
    "new": ("A new session?", "It ends this one and stops what runs."),
    "undo": ("Forget the last question?", "Its answer, too; what it changed in files is put back."),
}
"""Commands that are asked about: title and text of the question."""
CHOICES = {"approve": "once", "once": "once", "always": "always", "cancel": "cancel", "deny": "cancel"}
AT_ONCE = frozenset({"now", "-y", "--yes"})
"""Arguments of such a command that say that it is meant."""
SEND_S = 30.0
SENT = "confirmation_sent"
"""Note kept with the message in the inbox: its buttons were sent."""
GONE = "That question is not open any more. Give the command again."
NOT_YOURS = "Only who gave the command may answer that question."


class Confirming:
    """The questions of all chats. On the core loop."""

    def __init__(self, chats: Chats, commands: ChatCommands) -> None:
        self._chats, self._works, self._commands = chats, chats.works, commands
        self._open: dict[str, Confirm] = {}
        self._before: dict[str, set[str]] = {}
        """By session, what tools had asked when the question was put."""
        self._off = False  # the config is read at the next start

    async def recover(self) -> None:
        """Take up the questions that were open when the process ended, and forget those that nobody answered.

        Those of tools are put again, as new ones.
        """
        for confirm in await self._chats.store("asked"):
            self._keep(confirm)
            if self._works.clock() > confirm.until:
                await self._expire(confirm)
        for key in await self._chats.store("questions"):
            self._works.asked.mark(key)

    async def _expire(self, confirm: Confirm) -> None:
        """Forget a question that nobody answered; an answer that comes later is for no question of a tool."""
        self._works.asked.mark(confirm.session_key)
        await self._drop(confirm)
        await self._chats.keep_question(confirm.session_key)

    def awaits(self, name: str, key: str) -> bool:
        """Say whether a command is the answer to a question of a session."""
        return name in CHOICES and self._works.confirms.get_pending(key) is not None

    def asker_of(self, value: str) -> str | None:
        """Return the id of who was asked with a button of that value; None when it asks nothing that is open."""
        confirm = self._of_id(value.rpartition(" ")[2])
        return None if confirm is None else _source(from_payload(confirm.payload)).user_id

    async def ask(
        self, name: str, arguments: str, message: Claimed, event: MessageEvent, link: Link, key: str
    ) -> str | None:
        """Ask about a command. Return the question as a text: empty when buttons ask, None when nothing is asked."""
        if name not in ASKS or self._off or not self._works.settings.confirm or arguments.strip().lower() in AT_ONCE:
            return None
        route = await self._chats.route(key)
        if route is None or await self._works.agent.transcript("title", route.session_id) is None:
            return None  # nothing was said yet
        if message.notes.get(SENT):
            return ""  # by a process that ended before it finished the message; unless it expired, `recover` kept it
        until = self._works.clock() + self._works.settings.approval_s
        confirm = Confirm(key, f"{CONFIRM}{message.id}", name, arguments, to_payload(event), until)
        await self._chats.store("ask", confirm)
        self._keep(confirm)
        title, text = ASKS[name]
        if await self._asked_with_buttons(confirm, event, link):
            await message.note(**{SENT: True})
            return ""
        sign = getattr(link.adapter, "typed_command_prefix", "/")
        return (
            f"❓ {title} {text}\n{sign}approve: yes. {sign}always: yes, and do not ask again. {sign}cancel: no. "
            f"({sign}{name} now asks nothing.)"
        )

    async def _asked_with_buttons(self, confirm: Confirm, event: MessageEvent, link: Link) -> bool:
        leading = (
            ("chat_id", _source(event).chat_id),
            *zip(("title", "message"), ASKS[confirm.command], strict=True),
            ("session_key", confirm.session_key),
            ("confirm_id", confirm.confirm_id),
        )
        offered = {"metadata": reply_metadata(event) or None}

        async def put() -> bool:
            value = await call_with_what_it_takes(link.adapter.send_slash_confirm, leading, offered)
            return as_send_result(value).success

        try:
            return await self._works.agent.bridge.on_plugin(put(), deadline_s=SEND_S)
        except Exception as exc:  # noqa: BLE001 - a plugin's code: a text asks
            logger.warning("platform %s: send_slash_confirm failed, a text asks: %r", link.name, exc)
            return False

    def _keep(self, confirm: Confirm) -> None:
        async def settle(choice: str) -> str:
            return await self._works.agent.bridge.on_core(self._settle(confirm, choice))

        self._open[confirm.session_key] = confirm
        self._before[confirm.session_key] = {one.id for one in self._works.asked.of(confirm.session_key)}
        self._works.confirms.register(confirm.session_key, confirm.confirm_id, confirm.command, settle)

    async def answered(self, name: str, arguments: str, event: MessageEvent, key: str) -> str | None:
        """Take a command as the answer to a question; None when it is none. Return what is said to it."""
        choice, confirm_id = CHOICES.get(name), arguments.strip()
        if choice is None or (confirm_id and not confirm_id.startswith(CONFIRM)):
            return None
        if not confirm_id:
            pending = self._works.confirms.get_pending(key)
            if pending is None:
                return None
            confirm = self._of_id(pending["confirm_id"])
            if confirm is None:  # a plugin's own
                return await self._works.confirms.resolve(key, pending["confirm_id"], choice) or ""
            if name in ("approve", "deny") and {one.id for one in self._works.asked.of(key)} - self._before[key]:
                return None
        else:
            confirm = self._of_id(confirm_id)
        if confirm is None or self._works.clock() > confirm.until:
            if confirm is not None:
                await self._expire(confirm)
            return GONE if confirm_id else None
        if principal(_source(from_payload(confirm.payload))) != principal(_source(event)):
            return NOT_YOURS if confirm_id else None
        said = await self._works.confirms.resolve(confirm.session_key, confirm.confirm_id, choice)
        return GONE if said is None else said

    async def _settle(self, confirm: Confirm, choice: str) -> str:
        """Let what was asked about be done in its turn, or not.

        The question is forgotten last: after a kill in between the answer comes again, and the command's message is
        taken once.
        """
        if self._open.get(confirm.session_key) is not confirm or self._works.clock() > confirm.until:
            return GONE
        said = "Left as it is."
        if choice != "cancel":
            event = from_payload(confirm.payload)
            said = await self._never_again(event) if choice == "always" else ""
            event.text = f"/{confirm.command} {confirm.arguments}".strip()
            event.metadata["confirmed"] = True
            await self._put(confirm, event)
        await self._drop(confirm)
        return said

    async def _put(self, confirm: Confirm, event: MessageEvent) -> None:
        source = _source(event)
        beside = BESIDE if self._commands.is_beside(confirm.command, "") else ""
        chat, conversation = source.chat_id, confirm.session_key + beside
        message = Inbound(
            source.platform.value, chat, confirm.confirm_id, conversation, principal(source), to_payload(event)
        )
        await self._works.delivery.receive(message)

    async def _drop(self, confirm: Confirm) -> None:
        if self._open.get(confirm.session_key) is confirm:
            del self._open[confirm.session_key], self._before[confirm.session_key]
            pending = self._works.confirms.get_pending(confirm.session_key)
            if pending is not None and pending["confirm_id"] == confirm.confirm_id:
                self._works.confirms.clear(confirm.session_key)
        await self._chats.store("forget", confirm.confirm_id)

    async def _never_again(self, event: MessageEvent) -> str:
        """Turn the questions off for good, for everybody. Return what is said of it."""
        source = _source(event)
        link = self._chats.links[source.platform.value]
        if not may_give("approve", source, Admission(event.metadata.get("admitted", "")), link.config):
            return "It is asked again next time: you may not change the settings."
        keys = ("approvals", "destructive_slash_confirm")
        try:
            await self._works.agent.bridge.run(set_value, self._works.home, keys, False)
        except (UserError, OSError) as exc:
            return f"It is asked again next time: {exc}"
        self._off = True
        return f"It is not asked again ({'.'.join(keys)} is false now)."

    def _of_id(self, confirm_id: str) -> Confirm | None:
        open_now = list(self._open.values())  # adapters ask from their own loop's thread
        return next((one for one in open_now if one.confirm_id == confirm_id), None)


def _source(event: MessageEvent) -> SessionSource:
    assert event.source is not None
    return event.source
