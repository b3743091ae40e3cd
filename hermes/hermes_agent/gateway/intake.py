"""Intake of messages: access, rate limits, mentions, and the way to the inbox or a running turn.

Adapters know the mentions of their service and set `event.metadata["addressed"]`; otherwise `mention_patterns` decide.
A message of a user without access is neither stored nor answered, and only `pre_gateway_dispatch` sees it.
Source: plugin contract §3.7, §7.3, §8.2, §8.2.1.
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
"""A user with dropped messages gets a notice once in this time."""
MAX_SENDERS = 4096
"""Limit of counted senders; the sender that was idle for longest is dropped."""


class RateLimits:
    """Counts messages of the last minute, for one loop.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: LruDict[str, deque[float]] = LruDict(MAX_SENDERS)
        self._warned: LruDict[str, float] = LruDict(MAX_SENDERS)

    def count_message(self, sender: str, limit: int) -> bool:
        """Count a message; return False if there were `limit` of them in the last minute. 0: no limit."""
        if limit <= 0:
            return True
        now = self._clock()
        seen = self._seen.use(sender, deque)
        while seen and now - seen[0] >= WINDOW_S:
            seen.popleft()
        if len(seen) >= limit:
            return False
        seen.append(now)
        return True

    def may_warn(self, sender: str) -> bool:
        """Return whether a user may get a notice now: once in `WARN_EVERY_S`."""
        now = self._clock()
        last = self._warned.get(sender)
        if last is not None and now - last < WARN_EVERY_S:
            return False
        self._warned[sender] = now
        return True


logger = logging.getLogger(__name__)


def is_addressed(event: MessageEvent, source: SessionSource, config: PlatformConfig) -> bool:
    """Return whether a message is meant for the agent; in a direct chat, all are.

    Keys of `platforms.<name>`: `allowed_chats` (others are ignored), `free_response_chats` (all messages are
    processed), `require_mention` (False: all messages in all chats), `mention_patterns` (regular expressions).
    """
    if source.chat_type == "dm":
        return True
    if not is_allowed_chat(source, config):
        return False
    if _chat_ids(source) & _texts(config.extra.get("free_response_chats")):
        return True
    if event.reply_to_is_own_message or event.is_command():
        return True
    addressed = event.metadata.get("addressed")
    if isinstance(addressed, bool):
        return addressed or config.extra.get("require_mention") is False
    patterns = _texts(config.extra.get("mention_patterns"))
    if not patterns or config.extra.get("require_mention") is False:
        return True  # without metadata, the adapter passes only messages for the agent
    return any(found.search(event.text or "") for pattern in patterns if (found := _compiled(pattern)) is not None)


def is_allowed_chat(source: SessionSource, config: PlatformConfig) -> bool:
    """Return whether `platforms.<name>.allowed_chats` has the chat; without that list, it has all of them."""
    allowed = _texts(config.extra.get("allowed_chats"))
    return not allowed or source.chat_type == "dm" or bool(_chat_ids(source) & allowed)


def _chat_ids(source: SessionSource) -> set[str]:
    return {item for item in (source.chat_id, source.chat_id_alt, source.parent_chat_id, source.thread_id) if item}


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as exc:
        logger.warning("mention_patterns: invalid regular expression %r: %s", pattern, exc)
        return None


def _texts(value: Any) -> frozenset[str]:
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return frozenset(text for item in given if (text := str(item).strip()))


URGENT = frozenset({"stop", "approve", "deny"})
"""Commands that are counted separately."""
UNKNOWN_USERS_PER_MINUTE = 20
"""Limit of messages of users without access on a platform; others are dropped unseen."""
STORE_RETRY_S = (1, 2, 4, 8, 15, 30)
"""Delays in seconds before retries with a full disk; many services do not deliver a message again."""


class Intake:
    """Receives the messages of adapters, on the core loop.

    Args:
        gateway: the argument `gateway` of `pre_gateway_dispatch`.
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

    async def take(self, connection: AdapterConnection, event: MessageEvent) -> None:
        """Receive a message. On return it is on disk, or dropped.

        Raises:
            Exception: it could not be stored; the adapter must not acknowledge it.
        """
        source = event.source
        if source is None:
            return
        if source.profile_route_rejected:
            logger.warning("platform %s: message dropped: no profile answers its chat", connection.name)
            return
        admission = Admission("list") if event.internal else await self._admission(connection, event, source)
        if admission is None or (not event.text and not event.media_urls):
            return
        settings = self._deps.settings
        key = session_key_of(connection, source, settings.group_sessions_per_user, settings.thread_sessions_per_user)
        controls = event.allow_gateway_control
        if controls and (event.text or "").strip().lower() in settings.reset_triggers:
            is_new = self._commands.canonical_name(event.get_command() or "") == "new"
            event.text = event.text if is_new else "/new"  # an alias keeps the name that the user typed
        if alias := self._commands.alias_target(event.get_command()):
            event.text = f"{alias} {event.get_command_args()}".strip()
        if controls and not event.is_command() and not event.media_urls and self._take_answer(key, event.text):
            return
        if not event.internal and not event.is_command() and await self._is_handled(event, source, key):
            return
        mode = self._busy_mode(event)
        event.metadata["admitted"] = admission.by
        event.metadata.pop("confirmed", None)  # set by `CommandConfirmations` only
        name = event.get_command()
        during_turn = name is not None and not event.internal and self._commands.is_allowed_during_turn(name, key)
        receipt = await self._store(
            InboundMessage(
                connection.name,
                source.chat_id,
                event.message_id or "",
                key + COMMAND_KEY if during_turn else key,
                principal(source),
                to_payload(event),
            )
        )
        if not receipt.new:
            logger.info("platform %s: duplicate message %s dropped", connection.name, event.message_id)
            return
        self._chats.remember(receipt.id, event)
        running = self._chats.running.get(key)
        if running is None or during_turn or running.message.id == receipt.id:  # it may be running already
            return
        if mode == "steer" and not event.media_urls and name is None and await running.steer(receipt.id, event.text):
            return
        running.queued.append(receipt.id)
        must_wait = event.internal or event.message_type is MessageType.PHOTO or self._commands.is_command(name)
        if mode == "interrupt" and not must_wait:
            running.interrupt("newer message")

    async def _store(self, message: InboundMessage) -> Receipt:
        """Store a message, with retries while the disk is full; the adapter waits."""
        for wait_s in STORE_RETRY_S:
            try:
                return await self._deps.delivery.receive(message)
            except sqlite3.OperationalError as exc:
                logger.warning("platform %s: message not stored, retry in %d s: %s", message.platform, wait_s, exc)
                await asyncio.sleep(wait_s)
        return await self._deps.delivery.receive(message)

    def _take_answer(self, key: str, text: str) -> bool:
        """Use a message as the answer to a clarification of the session; return False if none is pending."""
        waiting = [item for item in self._deps.pending_questions.questions_for(key) if item.awaiting_text]
        if not waiting:
            return False
        choices, answer = waiting[0].choices, text.strip()
        if answer.isdigit() and 1 <= int(answer) <= len(choices):
            answer = choices[int(answer) - 1]
        return self._deps.pending_questions.answer(waiting[0].id, answer)

    def _busy_mode(self, event: MessageEvent) -> str:
        """Return the mode for a message during a turn; `/queue TEXT` and `/steer TEXT` become their text."""
        name = self._commands.canonical_name(event.get_command() or "")
        if name in ("queue", "steer") and event.get_command_args():
            event.text = event.get_command_args()
            return name
        return self._deps.settings.busy

    async def _admission(
        self, connection: AdapterConnection, event: MessageEvent, source: SessionSource
    ) -> Admission | None:
        """Return the admission of a message, or None to drop it."""
        platform, settings = connection.name, self._deps.settings
        sender = f"{platform}:{source.user_id or source.chat_id}"
        if event.get_command() in URGENT:
            sender += "!"  # a flood of messages must not prevent an interrupt
        if not self._rates.count_message(sender, settings.per_minute):
            admitted = await self._bridge.run(self._access.admit, source, connection.config, connection.adapter)
            if admitted.is_allowed and self._rates.may_warn(sender):
                await self._send_text(source, self._deps.translate("gateway.rate_limit", limit=settings.per_minute))
            return None
        if not await self._passes_hooks(event):
            return None
        admission = await self._bridge.run(self._access.admit, source, connection.config, connection.adapter)
        if not admission.is_allowed:
            if self._rates.count_message(f"unknown:{platform}", UNKNOWN_USERS_PER_MINUTE):
                logger.info("platform %s: no access for user %s", platform, source.user_id)
                await self._offer_pairing(connection, source)
            return None
        if not is_addressed(event, source, connection.config):
            return None
        return admission if self._rates.count_message(f"all:{platform}", settings.platform_per_minute) else None

    async def _passes_hooks(self, event: MessageEvent) -> bool:
        """Call `pre_gateway_dispatch`; the first decision counts."""
        hooks = self._deps.agent.hooks
        if not hooks.has("pre_gateway_dispatch"):
            return True
        payload = {"event": event, "gateway": self._gateway, "session_store": self._chats}
        steps = hooks.steps("pre_gateway_dispatch", payload)
        for result in await self._bridge.run_steps(steps, shortest_s=hooks.shortest_s("pre_gateway_dispatch")):
            answer = result.value if isinstance(result.value, dict) else {}
            match answer.get("action"):
                case "skip":
                    logger.info("message dropped by plugin %s: %s", result.plugin, answer.get("reason") or "")
                    return False
                case "rewrite" if isinstance(answer.get("text"), str):
                    event.text = answer["text"]
                    return True
                case "allow":
                    return True
        return True

    async def take_platform_event(
        self, connection: AdapterConnection, event: dict[str, Any], source: SessionSource
    ) -> None:
        """Notify plugins of an event that is no message (`gateway_platform_event`), if its user has access."""
        hooks, name = self._deps.agent.hooks, "gateway_platform_event"
        if not hooks.has(name) or not is_allowed_chat(source, connection.config):
            return
        if not self._rates.count_message(f"event:{connection.name}:{source.user_id}", self._deps.settings.per_minute):
            return
        admission = await self._bridge.run(self._access.admit, source, connection.config, connection.adapter)
        if admission.is_allowed:
            hooks.post(name, **event)

    async def _is_handled(self, event: MessageEvent, source: SessionSource, key: str) -> bool:
        """Return whether a plugin handled an admitted message (`post_gateway_admission`), and send its reply."""
        hooks, name = self._deps.agent.hooks, "post_gateway_admission"
        if not hooks.has(name):
            return False
        payload = {
            "session_key": key,
            "platform": source.platform.value,
            "source": source.to_dict(),
            "message_id": event.message_id or "",
            "text": event.text or "",
        }
        for result in await self._bridge.run_steps(hooks.steps(name, payload), shortest_s=hooks.shortest_s(name)):
            answer = result.value if isinstance(result.value, dict) else {}
            if answer.get("action") == "handled":
                logger.info("message handled by plugin %s", result.plugin)
                if isinstance(reply := answer.get("reply"), str) and reply.strip():
                    await self._send_text(source, reply)
                return True
        return False

    async def _offer_pairing(self, connection: AdapterConnection, source: SessionSource) -> None:
        """Send a pairing code to an unknown user of a direct chat; the store gives one in ten minutes."""
        behaviour = connection.config.extra.get("unauthorized_dm_behavior") or self._deps.settings.unknown_users
        if source.chat_type != "dm" or behaviour != "pair" or not source.user_id or source.is_bot:
            return
        code = await self._bridge.run(
            self._pairing.generate_code, connection.name, source.user_id, (source.user_name or "")[:80]
        )
        if code is not None:
            await self._send_text(source, self._deps.translate("gateway.pairing", code=code, platform=connection.name))

    async def _send_text(self, source: SessionSource, text: str) -> None:
        target = ReplyTarget(source.platform.value, source.chat_id, source.thread_id or "")
        await self._deps.delivery.send(OutboundReply(target, ({"text": text},)))


def session_key_of(connection: AdapterConnection, source: SessionSource, per_user: bool, thread_per_user: bool) -> str:
    """Return the session key of a message; a platform may have its own settings."""
    extra = connection.config.extra
    return build_session_key(
        source,
        group_sessions_per_user=bool(extra.get("group_sessions_per_user", per_user)),
        thread_sessions_per_user=bool(extra.get("thread_sessions_per_user", thread_per_user)),
        profile=source.profile,
    )
