"""Messages and their sources: `MessageEvent`, `SessionSource`, session keys, `SendResult`.

The session context (`bind_session`) names the message that is processed. Tools and hooks run in the context of their
caller, so they see the session of their message while others are processed in parallel.

The adapter of the guide has `connect(self)` and `send(self, chat_id, text)`; other adapters accept `is_reconnect`,
`reply_to` and `metadata`. `call_connect`, `call_send` and `call_optional` pass the arguments that a method accepts; all
callers of adapters use them. Source: plugin contract §8.2.2 [≠ G1], §8.2.3, §11, §13 row 22.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextvars import ContextVar, Token
from dataclasses import asdict, field, fields
from datetime import datetime
from enum import Enum
from typing import Any

from hermes_agent.adapters.config import Platform
from hermes_agent.core.calls import call_supported
from hermes_agent.core.lazy_types import lazy_dataclass

__all__ = [
    "CHAT_TYPES",
    "SESSION_VARIABLES",
    "SessionVariable",
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
    "call_optional",
    "call_send",
    "get_session_env",
    "join_texts",
    "merge_pending_message_event",
]


CHAT_TYPES = ("dm", "group", "channel", "thread", "forum")


@lazy_dataclass
class SessionSource:
    """Sender and place of a message.

    Attributes:
        chat_type: one of `CHAT_TYPES`.
        user_id_alt: another id of the same user, the more stable one if a platform has two.
        scope_id: the workspace of the chat; `guild_id` is Discord's term.
        role_authorized: whether roles of the platform allow this user to use the agent.
        profile: the profile that answers; None is the default profile.
        prospective_thread_id: the thread in which the reply to a message of a channel begins; both have one session.
        profile_route_rejected: whether no profile answers this chat, so that the message is dropped; never stored.
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
    prospective_thread_id: str | None = None
    profile_route_rejected: bool = field(default=False, repr=False, compare=False)

    @property
    def description(self) -> str:
        """The place in words: `DM with Ann`, `group: Team, thread: 5`."""
        if self.platform.value == "local":
            return "CLI terminal"
        name = self.chat_name or self.chat_id
        if self.chat_type == "dm":
            place = f"DM with {self.user_name or self.user_id or 'user'}"
        else:
            place = f"{self.chat_type}: {name}" if self.chat_type in ("group", "channel") else name
        return f"{place}, thread: {self.thread_id}" if self.thread_id else place

    def to_dict(self) -> dict[str, Any]:
        """Return a dict of JSON types."""
        values = {**asdict(self), "platform": self.platform.value}
        del values["profile_route_rejected"]
        return values

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SessionSource:
        """Return the source of a `to_dict` value; unknown keys are ignored.

        Raises:
            KeyError: the platform or chat is missing.
            ValueError: the platform is not registered.
        """
        known = {f.name for f in fields(cls)} - {"platform", "chat_id", "profile_route_rejected"}
        rest = {key: value for key, value in data.items() if key in known}
        return cls(Platform(data["platform"]), str(data["chat_id"]), **rest)


def build_session_key(
    source: SessionSource,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
    profile: str | None = None,
) -> str:
    """Return the key of the session of a message: `agent:main:<platform>:<chat_type>:…`.

    Args:
        group_sessions_per_user: whether each user of a group has a session.
        thread_sessions_per_user: whether each user of a thread has a session.
        profile: replaces `main`, unless it is None or `default`.
    """
    agent_name = profile if profile and profile != "default" else "main"
    platform = source.platform.value if isinstance(source.platform, Platform) else str(source.platform)
    user, thread = source.user_id_alt or source.user_id, source.thread_id or source.prospective_thread_id
    parts: list[str | None] = ["agent", agent_name, platform, source.chat_type or "dm"]
    if parts[-1] == "dm":
        parts += [source.chat_id or user, thread]
    else:
        parts += [source.chat_id, thread]
        if group_sessions_per_user and (thread_sessions_per_user or not thread):
            parts.append(user)
    return ":".join(str(part) for part in parts if part)


class MessageType(Enum):
    """Kind of the content of a message."""

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
    """Result of the work on a message."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"


@lazy_dataclass
class MessageEvent:
    """An incoming message.

    Attributes:
        media_urls: local paths of its files.
        media_types: MIME types of its files, in the same order.
        auto_skill: a skill, or several, to load.
        channel_prompt: addition of the channel to the system prompt.
        channel_context: earlier messages of the channel.
        internal: whether the agent created it, not a user.
        user_id, user_name: the author, if the source names none.
        reply_anchor_override: the message that the reply quotes; None is this message.
        allow_gateway_control: whether it may be a command or answer a question of the agent.
        prompt_response, reply_expected, ledger_message_id, media_text_inlined: the adapter's own; not used here.
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
    user_id: str | None = None
    user_name: str | None = None
    prompt_response: Any = None
    reply_expected: bool | None = None
    reply_anchor_override: str | None = None
    ledger_message_id: str | None = None
    allow_gateway_control: bool = True
    media_text_inlined: bool = False

    @property
    def anchor(self) -> str:
        """Id of the message that the reply quotes; "" for none."""
        return self.reply_anchor_override or self.message_id or ""

    def attach(self, path: str, mime: str, kind: MessageType) -> None:
        """Add a file.

        Args:
            kind: kind of the message, unless an earlier file determined it.
        """
        self.media_urls.append(path)
        self.media_types.append(mime)
        if self.message_type in (MessageType.TEXT, MessageType.COMMAND):
            self.message_type = kind

    def is_command(self) -> bool:
        """Return whether the text begins with a slash, and the message may be a command."""
        return self.allow_gateway_control and (self.text or "").startswith("/")

    def get_command(self) -> str | None:
        """Return the name of the command in lower case, without `@bot`; None for other texts and for paths."""
        words = self.text[1:].split(maxsplit=1) if self.is_command() else []
        name = words[0].partition("@")[0].lower() if words and not self.text[1:2].isspace() else ""
        return name if name and "/" not in name else None

    def get_command_args(self) -> str:
        """Return the text after the command, or the whole text if there is no command."""
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
    """Store a message until the session is free; images that come in a row become one message.

    Args:
        merge_text: whether texts are joined, each on a line; otherwise the later message replaces the earlier.
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
    """Return both texts, each on a line; a line that is there already is not added again."""
    lines = first.splitlines() if first else []
    return first if not second or second in lines else "\n".join(part for part in (first, second) if part)


_session: ContextVar[Mapping[str, str] | None] = ContextVar("hermes_session", default=None)


_UNSET = object()
SESSION_PREFIX = "HERMES_SESSION_"


class SessionVariable:
    """One value of the session context, with the methods of a `ContextVar`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get(self, default: Any = _UNSET) -> Any:
        """Return the value.

        Raises:
            LookupError: it has none, and there is no default.
        """
        values = _session.get()
        if values is not None and self.name in values:
            return values[self.name]
        if default is _UNSET:
            raise LookupError(self.name)
        return default

    def set(self, value: str) -> Token[Mapping[str, str] | None]:
        """Set the value in this context, and return a token for `reset`."""
        return _session.set({**(_session.get() or {}), self.name: value})

    def reset(self, token: Token[Mapping[str, str] | None]) -> None:
        """Return to the value before `set`."""
        _session.reset(token)


SESSION_VARIABLES: dict[str, Any] = {
    f"{SESSION_PREFIX}{name}": SessionVariable(f"{SESSION_PREFIX}{name}")
    for name in ("PLATFORM", "CHAT_ID", "CHAT_NAME", "THREAD_ID", "USER_ID", "USER_NAME", "KEY")
}
"""The values of the session context by name; plugins may add a `ContextVar` of their own."""


def get_session_env(name: str, default: str = "") -> str:
    """Return a value of the session of the message that is processed, or else of the environment.

    The names are those of `SESSION_VARIABLES`.
    """
    try:
        return str(SESSION_VARIABLES[name].get() or default)
    except LookupError:
        return os.environ.get(name, default)


@contextlib.contextmanager
def bind_session(source: SessionSource, key: str) -> Iterator[None]:
    """Set the session context to a message of `source` inside the block."""
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


@lazy_dataclass
class SendResult:
    """Result of sending a message.

    Attributes:
        message_id: the id that the platform gave to it, or to its first part.
        error: the reason of a failure.
        retryable: whether it did not arrive and another attempt may help.
        retry_after: seconds to wait before that attempt.
        continuation_message_ids: ids of its other parts.
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
    """A reply that is deleted later; a handler may return it instead of a text.

    Args:
        ttl_seconds: how long it stays; None: the default of the platform, which keeps it.
    """

    ttl_seconds: float | None

    def __new__(cls, text: str, ttl_seconds: float | None = None) -> EphemeralReply:
        reply = super().__new__(cls, text)
        reply.ttl_seconds = ttl_seconds
        return reply

    @property
    def text(self) -> str:
        """The text as a plain `str`."""
        return str.__str__(self)


def as_send_result(value: Any) -> SendResult:
    """Return the value of `send` as a `SendResult`; adapters of the guide return None or an id."""
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


logger = logging.getLogger(__name__)


async def call_connect(adapter: Any, *, is_reconnect: bool = False) -> bool:
    """Connect an adapter; a return value of None counts as success.

    Raises:
        Exception: any exception of the adapter.
    """
    answer = await _call(adapter.connect, (), {"is_reconnect": is_reconnect})
    return answer is None or bool(answer)


async def call_send(
    adapter: Any, chat_id: str, content: str, reply_to: str | None = None, metadata: Mapping[str, Any] | None = None
) -> SendResult:
    """Send through an adapter; return its result as a `SendResult`.

    Raises:
        Exception: any exception of the adapter.
    """
    leading = (("chat_id", chat_id), ("content", content))
    return as_send_result(await _call(adapter.send, leading, {"reply_to": reply_to, "metadata": metadata}))


async def call_optional(adapter: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    """Call an optional method of an adapter; return None if it is missing or fails. Failures are logged.

    Args:
        args: positional arguments.
        kwargs: omitted if the method does not accept them.
    """
    function = getattr(adapter, method, None)
    if not callable(function):
        return None
    try:
        value = call_supported(function, tuple(("", value) for value in args), kwargs)
        return await value if inspect.isawaitable(value) else value
    except Exception as exc:  # noqa: BLE001 - plugin code: the answer must not fail with it
        logger.warning("[%s] %s failed: %s: %s", _name(adapter), method, type(exc).__name__, exc)
        return None


async def _call(function: Callable[..., Any], leading: tuple[tuple[str, Any], ...], offered: Mapping[str, Any]) -> Any:
    value = call_supported(function, leading, offered)
    return await value if inspect.isawaitable(value) else value


def _name(adapter: Any) -> str:
    return str(getattr(adapter, "name", type(adapter).__name__))
