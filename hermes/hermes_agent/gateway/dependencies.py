"""Dependencies and settings of the gateway."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from hermes_agent.adapters.events import MessageEvent, SessionSource
from hermes_agent.adapters.registry import PlatformRegistry
from hermes_agent.agent import Agent
from hermes_agent.agent.command_router import CommandRouter
from hermes_agent.commands.runner import PendingConfirmations
from hermes_agent.config.home import PRINCIPALS, find_denial
from hermes_agent.config.settings import Settings, section
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.delivery import DeliveryService
from hermes_agent.gateway.access import Admission
from hermes_agent.gateway.adapter_connection import AdapterConnection, ConnectionPauses, ConnectionState
from hermes_agent.gateway.chat_routes import SessionResetPolicy
from hermes_agent.policy import Choice, PendingQuestions, Refusal

logger = logging.getLogger(__name__)

NOTICES = {
    "gateway.pairing": (
        "Hello! You do not have access yet. Your pairing code is {code}; it expires in an hour. The operator approves"
        " it with: hermes pairing approve {platform} {code}"
    ),
    "gateway.rate_limit": (
        "You write too fast (limit: {limit} messages a minute). Messages above the limit are dropped."
    ),
    "gateway.failure": (
        "⚠️ Your message could not be processed ({what}). Please send it again. The log has the details."
    ),
}
"""English texts for users of chats, by key; locales have them in other languages."""


def english(key: str, /, **values: Any) -> str:
    """Return a notice in English."""
    return NOTICES[key].format(**values)


BusyMode = Literal["interrupt", "queue", "steer"]


class GatewaySettings(LazyNamedTuple):
    """Settings of the gateway from the config."""

    busy: BusyMode = "interrupt"
    """What happens with a message that arrives during a turn."""
    reset: SessionResetPolicy = SessionResetPolicy()
    idle_turn_s: float = 1800.0
    """Seconds without progress after which a turn is stopped; 0: no limit."""
    approval_s: float = 300.0
    confirm: bool = True
    """Whether commands that end or delete something need a confirmation."""
    turns: int = 16
    """Limit of turns that run in parallel."""
    per_minute: int = 30
    platform_per_minute: int = 600
    unknown_users: Literal["pair", "ignore"] = "pair"
    progress: str = "all"
    """Displayed tool calls: `off`, `new`, `all`, `verbose`."""
    streaming: bool = False
    edit_every_s: float = 0.8
    edit_after: int = 24
    """Number of new characters before a message is edited."""
    cursor: str = " ▉"
    pictures: Literal["auto", "always", "never"] = "auto"
    voice_replies: Literal["off", "voice", "all"] = "voice"
    """Which answers are also spoken: those to voice messages, or all."""
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    reset_triggers: tuple[str, ...] = ("/new", "/reset")

    @classmethod
    def of(cls, settings: Settings) -> GatewaySettings:
        """Return the settings of the config."""
        gateway, streaming = settings.gateway, settings.streaming
        return section(
            cls,
            gateway,
            busy=settings.display.busy_input_mode,
            reset=section(SessionResetPolicy, settings.session_reset),
            idle_turn_s=settings.agent.gateway_timeout,
            approval_s=settings.approvals.gateway_timeout,
            confirm=settings.approvals.destructive_slash_confirm,
            turns=gateway.max_concurrent_turns,
            per_minute=gateway.messages_per_minute,
            platform_per_minute=gateway.platform_messages_per_minute,
            unknown_users=settings.unauthorized_dm_behavior,
            progress=settings.display.tool_progress,
            streaming=streaming.enabled,
            edit_every_s=streaming.edit_interval,
            edit_after=streaming.buffer_threshold,
            cursor=streaming.cursor,
            group_sessions_per_user=settings.group_sessions_per_user,
            thread_sessions_per_user=settings.thread_sessions_per_user,
            reset_triggers=tuple(str(text).strip().lower() for text in settings.reset_triggers),
        )


class CommandInvocation(LazyNamedTuple):
    """A command in a chat: the argument of handlers of commands that only chats have."""

    name: str
    arguments: str
    event: MessageEvent
    source: SessionSource
    key: str
    connection: AdapterConnection
    admission: Admission


@lazy_dataclass
class GatewayDeps:
    """Parts of the process that the gateway uses."""

    agent: Agent
    slash: CommandRouter
    delivery: DeliveryService
    platforms: PlatformRegistry
    pending_approvals: PendingQuestions[Choice | Refusal]
    pending_questions: PendingQuestions[str]
    """Clarifications; the next message answers them."""
    pending_confirmations: PendingConfirmations
    home: Path
    values: Callable[[], Mapping[str, Any]]
    """Return the effective config."""
    read_settings: Callable[[], GatewaySettings] = GatewaySettings
    """Return the settings of the present config; called at the start and at each reload."""
    supports_images: Callable[[str], bool] = lambda provider: False
    """Return whether models of a provider accept images."""
    transcribe: Callable[[str], str] | None = None
    """Return the text of an audio file; "" if no provider can transcribe it; runs in a worker."""
    synthesize: Callable[[str], str] | None = None
    """Return the path of an audio file of a text; "" if no provider can synthesize it; runs in a worker."""
    stream_speech: Callable[[str], Any] = lambda text: None
    """Return the speech of a text: `format`, and `pieces` while they are made; None for files; runs in a worker."""
    platform_handlers: Callable[[str], Sequence[tuple[str, Callable[[Any], Any]]]] = lambda platform: ()
    """Return the plugins with handlers for a platform, each with its function."""
    translate: Callable[..., str] = english
    """`translate(key, **values)`: return a notice in the operator's language."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], float] = time.time
    on_state: Callable[[ConnectionState], None] = lambda state: None
    """Called for each change of a platform's state, on the core loop."""
    restart: Callable[[str], None] | None = None
    """Restart the daemon; the argument comes back as `restarted_for`. None if the process cannot restart."""
    restarted_for: str = ""
    pauses: ConnectionPauses = field(default_factory=ConnectionPauses)

    def __post_init__(self) -> None:
        self.settings = self.read_settings()

    def is_open(self, principal: str) -> Callable[[str], bool]:
        """Return a function that tells whether a session of a principal may send a file."""
        home, reader = f"{os.path.realpath(self.home)}/", self.agent.principals.reader(principal)

        def is_open(path: str) -> bool:
            place = os.path.realpath(path).removeprefix(home)
            reason = find_denial(place, reader) if place.startswith(f"{PRINCIPALS}/") else None
            if reason is not None:
                logger.warning("file not sent to the chat of %s: %s: %s", principal or "no principal", path, reason)
            return reason is None

        return is_open
