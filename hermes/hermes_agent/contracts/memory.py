"""Memory: knowledge across sessions, kept by a service or a file.

`memory.provider` selects the provider that is used. A provider need not inherit from `MemoryProvider`: an object with
its three required members is one. `ProviderConfigSchema` describes the settings of a memory plugin as data for a form;
plugins and their tests import these classes. Source: plugin contract §8.3, §11.1, §13 rows 16-19; contract of 0.23 §3.
"""

from __future__ import annotations

import abc
import contextvars
import functools
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hermes_agent.contracts.kind import Kind, SelectedProvider, select_by_name
from hermes_agent.core.lazy_types import lazy_dataclass

__all__ = [
    "CORE_MEMORY_PROVIDER_SENTINELS",
    "INDICATOR_GLYPH",
    "KIND_BOOL",
    "KIND_JSON",
    "KIND_NUMBER",
    "KIND_SECRET",
    "KIND_SELECT",
    "KIND_TEXT",
    "MEMORY",
    "MemoryProvider",
    "PRE_COMPRESS_CHECKPOINT_API_VERSION",
    "ProviderConfigSchema",
    "ProviderField",
    "ProviderFieldOption",
    "RecallStatus",
    "STORAGE_FLAT_JSON",
    "STORAGE_HONCHO_HOST_BLOCK",
    "TRIVIAL_PROMPT_RE",
    "check_memory_provider",
    "choose_memory",
    "ctx_bound",
    "is_core_memory_provider",
    "is_trivial_prompt",
    "spawn_context_thread",
]


# ruff: noqa: B027 - optional methods do nothing by default


MEMORY = Kind("memory", "register_memory_provider", "memory provider", is_used=True)


CORE_MEMORY_PROVIDER_SENTINELS = frozenset({"", "default", "builtin", "built-in", "none"})
"""Values of `memory.provider` that mean the agent's own memory alone."""
PRE_COMPRESS_CHECKPOINT_API_VERSION = 2
"""`pre_compress_checkpoint_api_version` of a provider that stores durably at each `on_pre_compress`."""
INDICATOR_GLYPH = "🧠"

TRIVIAL_PROMPT_RE = re.compile(
    r"\s*(?:/.*|(?:yes|no|ok|okay|sure|thanks|thank you|y|n|yep|nope|yeah|nah|hi|hey|hello|yo|sup|continue|go ahead|"
    r"do it|proceed|got it|cool|nice|great|done|next|lgtm|k)?[\s\W_]*)",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a whole message that needs no recall."""


@lazy_dataclass(frozen=True)
class RecallStatus:
    """What the last prefetch added to a turn; a count of 0 means content without a number."""

    provider_label: str
    count: int
    glyph: str = INDICATOR_GLYPH


def is_core_memory_provider(name: object) -> bool:
    """Return whether a value of `memory.provider` means the agent's own memory alone."""
    return str(name or "").strip().lower() in CORE_MEMORY_PROVIDER_SENTINELS


def is_trivial_prompt(text: object) -> bool:
    """Return whether a message is empty, a command, or a bare reply such as "thanks!"."""
    stripped = str(text or "").strip()
    if not stripped or stripped.startswith("/"):
        return True
    return TRIVIAL_PROMPT_RE.fullmatch(stripped) is not None and any(c.isalnum() for c in stripped)


def ctx_bound(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` so that each call runs with the present context variables."""
    context = contextvars.copy_context()

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return context.copy().run(fn, *args, **kwargs)

    return call


def spawn_context_thread(
    target: Callable[..., Any],
    *,
    name: str,
    daemon: bool = True,
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> threading.Thread:
    """Return a thread, not started, that runs `target` with the context variables of the caller."""
    return threading.Thread(
        target=ctx_bound(target), name=name, daemon=daemon, args=tuple(args), kwargs=dict(kwargs or {})
    )


class MemoryProvider(abc.ABC):
    """A memory: it stores turns and recalls them."""

    separates_people: bool = False
    """Extension: it separates the knowledge of each user (`user_id` of `initialize`), so that it may serve all of them;
    otherwise it serves the owner of the home alone, unless the operator allows more."""
    pre_compress_checkpoint_api_version: int = 1
    """2: it stores durably at each successful `on_pre_compress`."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name in the config."""

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Return whether it could be used now, without a network request."""

    @abc.abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Start a session.

        Args:
            kwargs: `hermes_home`, `platform`, `agent_context`; others if they are known (plugin contract §8.3).
        """

    def unavailable_reason(self) -> str:
        """Return why `is_available` is false, for the user."""
        return ""

    def recall_status(self) -> RecallStatus | None:
        """Return what the last `prefetch` added."""
        return None

    def identity_signature(self) -> dict[str, Any]:
        """Return what the provider is bound to; a changed value starts it again. Must be cheap."""
        return {}

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return its tools for the model: functions, bare or wrapped."""
        return []

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Return the result of a call of one of its tools."""
        raise NotImplementedError(f"memory provider '{self.name}' has no tool '{tool_name}'")

    def system_prompt_block(self) -> str:
        """Return its text for the system prompt of a new session."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str | None:
        """Return the knowledge about a message, before each turn."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Prepare the recall for the next turn."""

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
        turn_author: dict[str, Any] | None = None,
    ) -> None:
        """Store a turn; the first two are passed by position, the others if the signature has them.

        Args:
            turn_author: `id`, `name` and `is_bot` of the user who wrote the message.
        """

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Start a turn.

        Args:
            kwargs: `remaining_tokens`, `model`, `platform`, `tool_count`, `author_id`, `author_name`, `author_is_bot`.
        """

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """End a session."""

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Continue under another session id. `rewound`: same id, but the transcript was cut."""

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """Return what a compaction of the conversation must keep."""
        return ""

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any) -> None:
        """Note the result of a subagent."""

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Note a change of the agent's own notes.

        Args:
            action: `add`, `replace` or `remove`.
            target: `memory` or `user`.
        """

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return its settings.

        Each has `key`, and may have `description`, `secret`, `required`, `default`, `choices`, `url`, `env_var`,
        `type` (`text`, `integer`, `number`, `boolean`), `minimum`, `maximum` and `step`.
        """
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Store settings that are not secret."""

    def backup_paths(self) -> list[str]:
        """Return files and folders outside the home that belong in a backup."""
        return []

    def shutdown(self) -> None:
        """Release everything; the process ends."""


def check_memory_provider(provider: Any) -> str:
    """Return why `provider` cannot be registered, or "" if it can."""
    missing = [name for name in ("is_available", "initialize") if not callable(getattr(provider, name, None))]
    return f"has no {' and no '.join(f'{name}()' for name in missing)}" if missing else ""


def choose_memory(
    providers: Mapping[str, MemoryProvider], values: Mapping[str, Any]
) -> SelectedProvider[MemoryProvider]:
    """Return the provider that the config names."""
    path = "memory.provider"
    return select_by_name(providers, values, path, "memory") or SelectedProvider(None, f"{path} is not set")


KIND_TEXT, KIND_SELECT, KIND_SECRET = "text", "select", "secret"
KIND_BOOL, KIND_NUMBER, KIND_JSON = "bool", "number", "json"
STORAGE_FLAT_JSON = "flat_json"
"""The settings are a JSON object in `HOME/<name>/config.json`."""
STORAGE_HONCHO_HOST_BLOCK = "honcho_host_block"


@lazy_dataclass(frozen=True)
class ProviderFieldOption:
    """A value that a field of `KIND_SELECT` can have."""

    value: str
    label: str
    description: str = ""


@lazy_dataclass(frozen=True)
class ProviderField:
    """A setting."""

    key: str
    label: str
    kind: str = KIND_TEXT
    default: str = ""
    description: str = ""
    placeholder: str = ""
    options: tuple[ProviderFieldOption, ...] = ()
    env_key: str | None = None
    """Environment variable that stores a secret."""
    aliases: tuple[str, ...] = ()
    """Older keys that are read as well."""
    env_fallbacks: tuple[str, ...] = ()
    inline: bool = False
    """Whether it is shown first."""
    group: str = ""
    info: str = ""
    scope: str = "host"

    @property
    def is_secret(self) -> bool:
        """Whether it is stored among the credentials and never shown."""
        return self.kind == KIND_SECRET

    def allowed_values(self) -> set[str]:
        """Return the values of its options."""
        return {option.value for option in self.options}


@lazy_dataclass(frozen=True)
class ProviderConfigSchema:
    """Settings of a memory plugin."""

    name: str
    label: str
    storage: str = STORAGE_FLAT_JSON
    docs_url: str = ""
    fields: tuple[ProviderField, ...] = ()

    def inline_fields(self) -> tuple[ProviderField, ...]:
        """Return the settings that are shown first."""
        return tuple(field for field in self.fields if field.inline)
