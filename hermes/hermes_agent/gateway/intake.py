"""How many messages a minute are taken: of one person, of one platform, of strangers.

Which messages of a group are meant for the agent. Source: plugin contract §8.2.1.

Adapters know best what a mention is on their service: one that sets `event.metadata["addressed"]` is believed. What it
does not say is told from `mention_patterns`.

A message arrives: is it taken, whose session is it for, and does it wait for the turn that runs there.

Source: plugin contract §3.7, §7.3, §8.2. Nothing of somebody who is not let in is kept, answered or shown to
anybody but `pre_gateway_dispatch`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from hermes_agent.adapters.config import PlatformConfig
from hermes_agent.adapters.events import MessageEvent, MessageType, SessionSource, build_session_key
from hermes_agent.core.caches import LruDict
from hermes_agent.delivery import InboundMessage, OutboundReply, Receipt, ReplyTarget
from hermes_agent.gateway.access import AccessControl, Admission, PairingStore, principal
from hermes_agent.gateway.adapter_connection import AdapterConnection
from hermes_agent.gateway.chat_commands import ChatCommands
from hermes_agent.gateway.chat_messages import to_payload
from hermes_agent.gateway.chat_sessions import COMMAND_KEY, ChatSessions

WINDOW_S = 60.0
WARN_EVERY_S = 600.0
"""Somebody whose messages are dropped is told so once in this time."""
MAX_SENDERS = 4096
"""Senders that are counted at a time; one who was not heard for longest is forgotten."""


class RateLimits:
    """Counts within the last minute. For one loop.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: LruDict[str, deque[float]] = LruDict(MAX_SENDERS)
        self._warned: LruDict[str, float] = LruDict(MAX_SENDERS)

    def count_message(self, whose: str, limit: int) -> bool:
        """Count a message; false when there were `limit` of them in the last minute. 0 means no limit."""
        if limit <= 0:
            return True
        now = self._clock()
        seen = self._seen.use(whose, deque)
        while seen and now - seen[0] >= WINDOW_S:
            seen.popleft()
        if len(seen) >= limit:
            return False
        seen.append(now)
        return True

    def may_warn(self, whom: str) -> bool:
        """Say whether somebody may be told now why nothing happens; true once in `WARN_EVERY_S`."""
        now = self._clock()
        last = self._warned.get(whom)
        if last is not None and now - last < WARN_EVERY_S:
            return False
        self._warned[whom] = now
        return True


logger = logging.getLogger(__name__)


def is_addressed(event: MessageEvent, source: SessionSource, config: PlatformConfig) -> bool:
    """Say whether a message is for the agent: in a direct chat all are.

    Keys of `platforms.<name>`: `allowed_chats` (others are not heard), `free_response_chats` (everything is heard),
    `require_mention` (false: the same everywhere), `mention_patterns` (regular expressions).
    """
    if source.chat_type == "dm":
        return True
    here = {one for one in (source.chat_id, source.chat_id_alt, source.parent_chat_id, source.thread_id) if one}
    allowed = _texts(config.extra.get("allowed_chats"))
    if allowed and not here & allowed:
        return False
    if here & _texts(config.extra.get("free_response_chats")):
        return True
    if event.reply_to_is_own_message or event.is_command():
        return True
    addressed = event.metadata.get("addressed")
    if isinstance(addressed, bool):
        return addressed or config.extra.get("require_mention") is False
    patterns = _texts(config.extra.get("mention_patterns"))
    if not patterns or config.extra.get("require_mention") is False:
        return True  # an adapter that knows mentions hands in what is meant, and nothing else
    return any(found.search(event.text or "") for one in patterns if (found := _compiled(one)) is not None)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as exc:
        logger.warning("mention_patterns: %r is no regular expression: %s", pattern, exc)
        return None


def _texts(value: Any) -> frozenset[str]:
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return frozenset(text for one in given if (text := str(one).strip()))


URGENT = frozenset({"stop", "approve", "deny"})
"""Commands that are counted by themselves."""
UNKNOWN_USERS_PER_MINUTE = 20
"""Messages of people who are not let in that a platform may bring; the rest is not looked at."""
STORE_RETRY_S = (1, 2, 4, 8, 15, 30)
"""Waits for a disk that is full: many adapters have nobody who would bring a message again."""
PAIRING_NOTICE = (
    "Hello! I do not know you yet. Your pairing code is {code}; it holds for an hour. The operator of this agent lets"
    " you in with: hermes pairing approve {platform} {code}"
)
RATE_LIMIT_NOTICE = "You write faster than I may read ({limit} messages a minute); what came beyond that is dropped."


class Intake:
    """Takes messages in. On the core loop.

    Args:
        gateway: what `pre_gateway_dispatch` is given.
    """

    def __init__(
        self, chats: ChatSessions, commands: ChatCommands, access: AccessControl, pairing: PairingStore, gateway: Any
    ) -> None:
        self._chats, self._commands = chats, commands
        self._deps = chats.deps
        self._bridge = chats.deps.agent.bridge
        self._access, self._pairing = access, pairing
        self._gateway = gateway
        self._rates = RateLimits(time.monotonic)

    async def take(self, link: AdapterConnection, event: MessageEvent) -> None:
        """Take a message; it is on disk, or dropped for good, when this returns.

        Raises:
            Exception: it could not be stored; the platform must not be told that it arrived.
        """
        source = event.source
        if source is None:
            return
        admission = Admission("list") if event.internal else await self._admission(link, event, source)
        if admission is None or (not event.text and not event.media_urls):
            return
        settings = self._deps.settings
        key = _session_key(link, source, settings.group_sessions_per_user, settings.thread_sessions_per_user)
        if (event.text or "").strip().lower() in settings.reset_triggers:
            event.text = "/new"
        if alias := self._commands.alias_target(event.get_command()):
            event.text = f"{alias} {event.get_command_args()}".strip()
        if not event.is_command() and not event.media_urls and self._take_answer(key, event.text):
            return
        mode = self._busy_mode(event)
        event.metadata["admitted"] = admission.by
        event.metadata.pop("confirmed", None)  # set by `CommandConfirmations` alone
        name = event.get_command()
        beside = name is not None and not event.internal and self._commands.is_allowed_during_turn(name, key)
        receipt = await self._store(
            InboundMessage(
                link.name,
                source.chat_id,
                event.message_id or "",
                key + COMMAND_KEY if beside else key,
                principal(source),
                to_payload(event),
            )
        )
        if not receipt.new:
            logger.info("platform %s: message %s came twice", link.name, event.message_id)
            return
        self._chats.remember(receipt.id, event)
        running = self._chats.running.get(key)
        if running is None or beside or running.message.id == receipt.id:  # it may be worked on already
            return
        if mode == "steer" and not event.media_urls and name is None and await running.steer(receipt.id, event.text):
            return
        running.queued.append(receipt.id)
        waits = event.internal or event.message_type is MessageType.PHOTO or self._commands.is_command(name)
        if mode == "interrupt" and not waits:
            running.interrupt("newer message")

    async def _store(self, message: InboundMessage) -> Receipt:
        """Store a message; while nothing can be written it waits, and so does the adapter that brings it."""
        for wait_s in STORE_RETRY_S:
            try:
                return await self._deps.delivery.receive(message)
            except sqlite3.OperationalError as exc:
                logger.warning(
                    "platform %s: a message cannot be stored (%s); again in %d s", message.platform, exc, wait_s
                )
                await asyncio.sleep(wait_s)
        return await self._deps.delivery.receive(message)

    def _take_answer(self, key: str, text: str) -> bool:
        """Take a message for the answer to what the session was asked; false when nothing was asked."""
        waiting = [one for one in self._deps.pending_questions.questions_for(key) if one.awaiting_text]
        if not waiting:
            return False
        choices, said = waiting[0].choices, text.strip()
        if said.isdigit() and 1 <= int(said) <= len(choices):
            said = choices[int(said) - 1]
        return self._deps.pending_questions.answer(waiting[0].id, said)

    def _busy_mode(self, event: MessageEvent) -> str:
        """Return what becomes of a message while a turn runs; `/queue TEXT` and `/steer TEXT` become their text."""
        said = self._commands.canonical_name(event.get_command() or "")
        if said in ("queue", "steer") and event.get_command_args():
            event.text = event.get_command_args()
            return said
        return self._deps.settings.busy

    async def _admission(self, link: AdapterConnection, event: MessageEvent, source: SessionSource) -> Admission | None:
        """Return what lets a message in; None drops it."""
        platform, settings = link.name, self._deps.settings
        who = f"{platform}:{source.user_id or source.chat_id}"
        if event.get_command() in URGENT:
            who += "!"  # a flood of words must not keep anybody from stopping what runs
        if not self._rates.count_message(who, settings.per_minute):
            admitted = await self._bridge.run(self._access.admit, source, link.config, link.adapter)
            if admitted.is_allowed and self._rates.may_warn(who):
                await self._send_text(source, RATE_LIMIT_NOTICE.format(limit=settings.per_minute))
            return None
        if not await self._passes_hooks(event):
            return None
        admission = await self._bridge.run(self._access.admit, source, link.config, link.adapter)
        if not admission.is_allowed:
            if self._rates.count_message(f"strangers:{platform}", UNKNOWN_USERS_PER_MINUTE):
                logger.info("platform %s: %s is not let in", platform, source.user_id)
                await self._offer_pairing(link, source)
            return None
        if not is_addressed(event, source, link.config):
            return None
        return admission if self._rates.count_message(f"all:{platform}", settings.platform_per_minute) else None

    async def _passes_hooks(self, event: MessageEvent) -> bool:
        """Ask `pre_gateway_dispatch`; the first answer that means something counts."""
        hooks = self._deps.agent.hooks
        if not hooks.has("pre_gateway_dispatch"):
            return True
        payload = {"event": event, "gateway": self._gateway, "session_store": self._chats}
        steps = hooks.steps("pre_gateway_dispatch", payload)
        for result in await self._bridge.run_steps(steps, shortest_s=hooks.shortest_s("pre_gateway_dispatch")):
            said = result.value if isinstance(result.value, dict) else {}
            match said.get("action"):
                case "skip":
                    logger.info("a message is dropped by plugin %s: %s", result.plugin, said.get("reason") or "")
                    return False
                case "rewrite" if isinstance(said.get("text"), str):
                    event.text = said["text"]
                    return True
                case "allow":
                    return True
        return True

    async def _offer_pairing(self, link: AdapterConnection, source: SessionSource) -> None:
        """Give a stranger who writes directly a code; the store gives one in ten minutes."""
        behaviour = link.config.extra.get("unauthorized_dm_behavior") or self._deps.settings.unknown_users
        if source.chat_type != "dm" or behaviour != "pair" or not source.user_id or source.is_bot:
            return
        code = await self._bridge.run(
            self._pairing.generate_code, link.name, source.user_id, (source.user_name or "")[:80]
        )
        if code is not None:
            await self._send_text(source, PAIRING_NOTICE.format(code=code, platform=link.name))

    async def _send_text(self, source: SessionSource, text: str) -> None:
        target = ReplyTarget(source.platform.value, source.chat_id, source.thread_id or "")
        await self._deps.delivery.send(OutboundReply(target, ({"text": text},)))


def _session_key(link: AdapterConnection, source: SessionSource, per_user: bool, thread_per_user: bool) -> str:
    """Return the key of the session that a message belongs to; a platform may cut its sessions otherwise."""
    extra = link.config.extra
    return build_session_key(
        source,
        group_sessions_per_user=bool(extra.get("group_sessions_per_user", per_user)),
        thread_sessions_per_user=bool(extra.get("thread_sessions_per_user", thread_per_user)),
        profile=source.profile,
    )
