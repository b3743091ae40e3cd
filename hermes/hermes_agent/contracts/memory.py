"""Memory: what is known across conversations, kept by a service or a file.

One is used, selected by `memory.provider`. A provider need not inherit from `MemoryProvider`: what has its three
required members is one. Source: plugin contract §8.3, §13 rows 16-19.

How a memory plugin describes its settings, as data that a form is drawn from. Source: plugin contract §11.1.

A plugin's `config_schema.py` holds a `CONFIG_SCHEMA`. Nothing of ours draws such a form yet; plugins and their tests
import the classes.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hermes_agent.contracts.kind import Kind, SelectedProvider, select_by_name

__all__ = [
    "KIND_BOOL",
    "KIND_JSON",
    "KIND_NUMBER",
    "KIND_SECRET",
    "KIND_SELECT",
    "KIND_TEXT",
    "MEMORY",
    "MemoryProvider",
    "ProviderConfigSchema",
    "ProviderField",
    "ProviderFieldOption",
    "STORAGE_FLAT_JSON",
    "STORAGE_HONCHO_HOST_BLOCK",
    "check_memory_provider",
    "choose_memory",
]


# ruff: noqa: B027 - a method that a provider may leave out does nothing


MEMORY = Kind("memory", "register_memory_provider", "memory provider", is_used=True)


class MemoryProvider(abc.ABC):
    """Remembers what was said, and recalls it."""

    separates_people: bool = False
    """It keeps what it knows of one person (`user_id` of `initialize`) from every other one, so that it may serve all;
    otherwise it serves the owner of the home alone, unless the operator says more. Not upstream's."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What the config calls it."""

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Say whether it could be used now; without asking the network."""

    @abc.abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """A conversation begins.

        Args:
            kwargs: `hermes_home` and `platform`; further ones where they are known (plugin contract §8.3).
        """

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools that it gives the model: functions, bare or wrapped."""
        return []

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of its tools."""
        raise NotImplementedError(f"memory provider '{self.name}' has no tool '{tool_name}'")

    def system_prompt_block(self) -> str:
        """Return what stands in the system prompt from the conversation's start on."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str | None:
        """Return what is known about a message, before each turn."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Get ready for the next turn."""

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Remember a turn; the first two are passed by position, `messages` where it is named."""

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """A turn begins; keywords: `remaining_tokens`, `model`, `platform`, `tool_count`."""

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """A conversation ends."""

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """The conversation goes on under another id."""

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """Return what must not be lost when the conversation is made shorter."""
        return ""

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any) -> None:
        """A sub-agent has ended."""

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """The agent's own memory was changed.

        Args:
            action: `add`, `replace` or `remove`.
            target: `memory` or `user`.
        """

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return its settings: `key`, `description`, `secret`, `required`, `default`, `choices`, `url`, `env_var`."""
        return []

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Keep settings that are not secret."""

    def backup_paths(self) -> list[str]:
        """Return files and folders outside the home that belong into a backup."""
        return []

    def shutdown(self) -> None:
        """The process ends."""


def check_memory_provider(provider: Any) -> str:
    """Return why `provider` cannot be registered, empty when it can."""
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
"""The settings are one JSON object in `HOME/<name>/config.json`."""
STORAGE_HONCHO_HOST_BLOCK = "honcho_host_block"


@dataclass(frozen=True)
class ProviderFieldOption:
    """One of the values that a field of `KIND_SELECT` can have."""

    value: str
    label: str
    description: str = ""


@dataclass(frozen=True)
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
    """Variable that a secret is stored in."""
    aliases: tuple[str, ...] = ()
    """Older keys that are read, too."""
    env_fallbacks: tuple[str, ...] = ()
    inline: bool = False
    """It belongs to the few that are shown first."""
    group: str = ""
    info: str = ""
    scope: str = "host"

    @property
    def is_secret(self) -> bool:
        """It is stored among the credentials and never shown."""
        return self.kind == KIND_SECRET

    def allowed_values(self) -> set[str]:
        """Return the values of its options."""
        return {option.value for option in self.options}


@dataclass(frozen=True)
class ProviderConfigSchema:
    """The settings of one memory plugin."""

    name: str
    label: str
    storage: str = STORAGE_FLAT_JSON
    docs_url: str = ""
    fields: tuple[ProviderField, ...] = ()

    def inline_fields(self) -> tuple[ProviderField, ...]:
        """Return the settings that are shown first."""
        return tuple(field for field in self.fields if field.inline)
