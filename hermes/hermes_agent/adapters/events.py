"""Where a message comes from, and the key of the session that it belongs to. Source: plugin contract §8.2.3.

A message that came in. Source: plugin contract §8.2.3.

Whose message is worked on in this context: `gateway.session_context`. Source: plugin contract §8.2.3, §11.

Tools and hooks that a message leads to run with the context of their caller, so they see the session of that message
also while others are worked on.

What became of a message that was sent. Source: plugin contract §8.2.3, §11.2.

Call what a plugin wrote with the arguments that it takes. Source: plugin contract §8.2.2 [≠ G1], §13 row 22.

The guide's adapter has `connect(self)` and `send(self, chat_id, text)`; others name `is_reconnect`, `reply_to` and
`metadata`. This is the one place that tells them apart; everybody calls an adapter through it.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import Any

from hermes_agent.adapters.config import Platform
from hermes_agent.core.calls import call_supported

__all__ = [
    "CHAT_TYPES",
    "ERROR_KINDS",
    "EphemeralReply",
    "MessageEvent",
    "MessageType",
    "ProcessingOutcome",
    "SendResult",
    "SessionSource",
    "as_send_result",
    "bind_session",
    "build_session_key",
    "call_connect",
    "call_get_chat_info",
    "call_optional",
    "call_send",
    "classify_send_error",
    "get_session_env",
    "is_retryable_error",
    "is_timeout_error",
    "join_texts",
    "merge_pending_message_event",
]


CHAT_TYPES = ("dm", "group", "channel", "thread", "forum")


@dataclass
class SessionSource:
    """Who wrote, and where.

    Attributes:
        chat_type: one of `CHAT_TYPES`.
        user_id_alt: another id of the same person, the steadier one where a platform has two.
        scope_id: the space that the chat is in; `guild_id` is Discord's word for it.
        role_authorized: the platform's own roles let this person talk to the agent.
        profile: the profile that answers; None means the default one.
    """

    platform: Platform
    chat_id: str
    chat_name: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_name: str | None = None
    thread_id: str | None = None
    chat_topic: str | None = None
    user_id_alt: str | None = None
    chat_id_alt: str | None = None
    is_bot: bool = False
    scope_id: str | None = None
    guild_id: str | None = None
    parent_chat_id: str | None = None
    message_id: str | None = None
    role_authorized: bool = False
    profile: str | None = None
    auto_thread_created: bool = False
    auto_thread_initial_name: str | None = None
    delivered_via_upstream_relay: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {**asdict(self), "platform": self.platform.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionSource:
        """Read what `to_dict` gave; keys that are not known are left out.

        Raises:
            KeyError: platform or chat is missing.
            ValueError: nobody registered its platform.
        """
        known = {f.name for f in fields(cls)} - {"platform", "chat_id"}
        rest = {key: value for key, value in data.items() if key in known}
        return cls(Platform(data["platform"]), str(data["chat_id"]), **rest)


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """Return the key of the session that a message belongs to: `agent:main:<platform>:<chat_type>:…`.

    Args:
        group_sessions_per_user: in a group, each person has a session.
        thread_sessions_per_user: in a thread too.
        profile: takes the place of `main`; None and `default` mean `main`.
    """
    whose = profile if profile and profile != "default" else "main"
    platform = source.platform.value if isinstance(source.platform, Platform) else str(source.platform)
    person = source.user_id_alt or source.user_id
    parts: list[str | None] = ["agent", whose, platform, source.chat_type or "dm"]
    if parts[-1] == "dm":
        parts += [source.chat_id or person, source.thread_id]
    else:
        parts += [source.chat_id, source.thread_id]
        if group_sessions_per_user and (thread_sessions_per_user or not source.thread_id):
            parts.append(person)
    return ":".join(str(part) for part in parts if part)


class MessageType(Enum):
    """What a message is made of."""

    TEXT = "text"
    LOCATION = "location"
    PHOTO = "photo"
    VIDEO = "video"
    AUDIO = "audio"
    VOICE = "voice"
    DOCUMENT = "document"
    STICKER = "sticker"
    COMMAND = "command"


class ProcessingOutcome(Enum):
    """How the work on a message ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"


@dataclass
class MessageEvent:
    """A message.

    Attributes:
        media_urls: local paths of what came with it.
        media_types: their MIME types, in the same order.
        auto_skill: a skill, or several, to work with.
        channel_prompt: what the channel adds to the system prompt.
        channel_context: what was said in the channel before.
        internal: made by the agent, not by a person.
    """

    text: str
    message_type: MessageType = MessageType.TEXT
    source: SessionSource | None = None
    raw_message: Any = None
    message_id: str | None = None
    platform_update_id: int | None = None
    media_urls: list[str] = field(default_factory=list)
    media_types: list[str] = field(default_factory=list)
    reply_to_message_id: str | None = None
    reply_to_text: str | None = None
    reply_to_author_id: str | None = None
    reply_to_author_name: str | None = None
    reply_to_is_own_message: bool = False
    auto_skill: str | list[str] | None = None
    channel_prompt: str | None = None
    channel_context: str | None = None
    internal: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    timestamp: datetime = field(default_factory=datetime.now)

    def attach(self, path: str, mime: str, kind: MessageType) -> None:
        """Add a file that came with it.

        Args:
            kind: what the message is made of, unless an earlier file said so.
        """
        self.media_urls.append(path)
        self.media_types.append(mime)
        if self.message_type in (MessageType.TEXT, MessageType.COMMAND):
            self.message_type = kind

    def is_command(self) -> bool:
        """Say whether the text begins with a slash."""
        return (self.text or "").startswith("/")

    def get_command(self) -> str | None:
        """Return the command's name, lower case, without `@bot`; None for other texts, and for paths."""
        words = self.text[1:].split(maxsplit=1) if self.is_command() else []
        name = words[0].partition("@")[0].lower() if words and not self.text[1:2].isspace() else ""
        return name if name and "/" not in name else None

    def get_command_args(self) -> str:
        """Return what follows the command; the whole text where there is none."""
        if self.get_command() is None:
            return self.text
        return self.text.partition(self.text.split(maxsplit=1)[0])[2].strip()


def merge_pending_message_event(
    pending_messages: MutableMapping[str, MessageEvent],
    session_key: str,
    event: MessageEvent,
    *,
    merge_text: bool = False,
) -> None:
    """Keep a message for when the session is free: pictures that come in a row become one message.

    Args:
        merge_text: texts are joined, a line each; otherwise the newer one takes the place of the older.
    """
    present = pending_messages.get(session_key)
    if present is None:
        pending_messages[session_key] = event
    elif event.media_urls or present.media_urls:
        if present.message_type is MessageType.TEXT and event.message_type is not MessageType.TEXT:
            present.message_type = event.message_type
        present.media_urls.extend(event.media_urls)
        present.media_types.extend(event.media_types)
        present.text = join_texts(present.text, event.text)
    elif merge_text and present.message_type is event.message_type is MessageType.TEXT:
        present.text = join_texts(present.text, event.text)
    else:
        pending_messages[session_key] = event


def join_texts(first: str, second: str) -> str:
    """Return both texts, a line each; a line that is there already is not added again."""
    lines = first.splitlines() if first else []
    return first if not second or second in lines else "\n".join(part for part in (first, second) if part)


_session: ContextVar[Mapping[str, str] | None] = ContextVar("hermes_session", default=None)


def get_session_env(name: str, default: str = "") -> str:
    """Return `HERMES_SESSION_PLATFORM`, `…_CHAT_ID`, `…_CHAT_NAME`, `…_THREAD_ID`, `…_USER_ID`, `…_USER_NAME`, `…_KEY`.

    They are of the message that is worked on here; elsewhere the environment is asked.
    """
    values = _session.get()
    if values is not None and name in values:
        return values[name] or default
    return os.environ.get(name, default)


@contextlib.contextmanager
def bind_session(source: SessionSource, key: str) -> Iterator[None]:
    """Work on a message of `source` inside the block."""
    values = {
        "PLATFORM": source.platform.value,
        "CHAT_ID": source.chat_id,
        "CHAT_NAME": source.chat_name,
        "THREAD_ID": source.thread_id,
        "USER_ID": source.user_id,
        "USER_NAME": source.user_name,
        "KEY": key,
    }
    token = _session.set({f"HERMES_SESSION_{name}": value or "" for name, value in values.items()})
    try:
        yield
    finally:
        _session.reset(token)


ERROR_KINDS = ("too_long", "bad_format", "forbidden", "not_found", "rate_limited", "transient", "unknown")

_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("rate_limited", ("rate limit", "ratelimit", "too many requests", "flood control", "retry after", "429")),
    ("too_long", ("too long", "too large", "message_too_long", "exceeds", "entity too large", "413")),
    ("bad_format", ("can't parse", "cannot parse", "parse entities", "invalid format", "markdown", "malformed")),
    ("forbidden", ("forbidden", "unauthorized", "not allowed", "permission", "blocked by", "kicked", "401", "403")),
    ("not_found", ("not found", "unknown channel", "no such", "does not exist", "404")),
    ("transient", ("connect", "network", "timed out", "timeout", "unavailable", "reset by peer", "broken pipe")),
    ("transient", ("500", "502", "503", "504", "temporar")),
)
_NEVER_ARRIVED = ("connect", "network", "unreachable", "refused", "reset by peer", "broken pipe", "dns", "resolve")
_MAYBE_ARRIVED = ("timed out", "timeout", "may have arrived")


@dataclass
class SendResult:
    """What became of a message.

    Attributes:
        message_id: the platform's id of it, or of the first of its parts.
        error: why it was not sent.
        retryable: it did not arrive, and sending it again may help.
        retry_after: seconds to wait first.
        continuation_message_ids: ids of its further parts.
        error_kind: one of `ERROR_KINDS`.
    """

    success: bool
    message_id: str | None = None
    error: str | None = None
    raw_response: Any = None
    retryable: bool = False
    retry_after: float | None = None
    continuation_message_ids: tuple[str, ...] = ()
    error_kind: str | None = None


class EphemeralReply(str):
    """A reply that is deleted again; a handler may return it in place of a text.

    Args:
        ttl_seconds: how long it stands; None leaves it to the platform, which keeps it.
    """

    ttl_seconds: float | None

    def __new__(cls, text: str, ttl_seconds: float | None = None) -> EphemeralReply:
        made = super().__new__(cls, text)
        made.ttl_seconds = ttl_seconds
        return made

    @property
    def text(self) -> str:
        """The text as a plain `str`."""
        return str.__str__(self)


def as_send_result(value: Any) -> SendResult:
    """Return what an adapter's `send` gave as a `SendResult`: the guide's adapters give nothing, or an id."""
    if isinstance(value, SendResult):
        return value
    if isinstance(value, Mapping):
        success = bool(value.get("success", not value.get("error")))
        message, error = value.get("message_id"), value.get("error")
        return SendResult(
            success,
            message_id=None if message is None else str(message),
            error=None if error is None else str(error),
            raw_response=value,
        )
    if value is False:
        return SendResult(False, error="send() returned False")
    if value is None or value is True:
        return SendResult(True)
    if isinstance(value, (str, int)):
        return SendResult(True, message_id=str(value))
    return SendResult(True, raw_response=value)


def classify_send_error(exc: BaseException | None, error_text: str = "") -> str:
    """Return which of `ERROR_KINDS` a failure is, by its class and text."""
    if isinstance(exc, (ConnectionError, TimeoutError)):
        return "transient"
    if isinstance(exc, PermissionError):
        return "forbidden"
    name = type(exc).__name__ if exc is not None else ""
    text = f"{name} {exc if exc is not None else ''} {error_text}".lower()
    return next((kind for kind, signs in _SIGNS if any(_has(text, sign) for sign in signs)), "unknown")


def _has(text: str, sign: str) -> bool:
    """Say whether `sign` stands in `text`; a number by itself, not in an id."""
    return bool(re.search(rf"(?<!\d){sign}(?!\d)", text)) if sign.isdigit() else sign in text


def is_retryable_error(error: str | None) -> bool:
    """Say whether a failure is the network's, before the message can have arrived."""
    text = (error or "").lower()
    return any(sign in text for sign in _NEVER_ARRIVED)


def is_timeout_error(error: str | None) -> bool:
    """Say whether nobody knows if the message arrived: sending it again could show it twice."""
    text = (error or "").lower()
    return any(sign in text for sign in _MAYBE_ARRIVED) and "connect" not in text


logger = logging.getLogger(__name__)


async def call_connect(adapter: Any, *, is_reconnect: bool = False) -> bool:
    """Connect an adapter; one that returns nothing says yes.

    Raises:
        Exception: whatever the adapter raises.
    """
    answer = await _call(adapter.connect, (), {"is_reconnect": is_reconnect})
    return answer is None or bool(answer)


async def call_send(
    adapter: Any, chat_id: str, content: str, reply_to: str | None = None, metadata: Mapping[str, Any] | None = None
) -> SendResult:
    """Send through an adapter; what it returns becomes a `SendResult`.

    Raises:
        Exception: whatever the adapter raises.
    """
    leading = (("chat_id", chat_id), ("content", content))
    return as_send_result(await _call(adapter.send, leading, {"reply_to": reply_to, "metadata": metadata}))


async def call_get_chat_info(adapter: Any, chat_id: str) -> dict[str, Any]:
    """Return `name` and `type` of a chat; an adapter that cannot say is asked no more than that."""
    ask = getattr(adapter, "get_chat_info", None)
    found = await _call(ask, (("chat_id", chat_id),), {}) if callable(ask) else None
    return {"name": chat_id, "type": "dm", **(found if isinstance(found, Mapping) else {})}


async def call_optional(adapter: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    """Call an adapter's method for its effect; None when it has none, or it fails: that is logged and no more.

    Args:
        args: passed by position.
        kwargs: left out where the method does not take them.
    """
    function = getattr(adapter, method, None)
    if not callable(function):
        return None
    try:
        value = call_supported(function, tuple(("", value) for value in args), kwargs)
        return await value if inspect.isawaitable(value) else value
    except Exception as exc:  # noqa: BLE001 - a plugin's code, called beside the answer: the answer goes on
        logger.warning("[%s] %s failed: %s: %s", _name(adapter), method, type(exc).__name__, exc)
        return None


async def _call(function: Callable[..., Any], leading: tuple[tuple[str, Any], ...], offered: Mapping[str, Any]) -> Any:
    value = call_supported(function, leading, offered)
    return await value if inspect.isawaitable(value) else value


def _name(adapter: Any) -> str:
    return str(getattr(adapter, "name", type(adapter).__name__))
