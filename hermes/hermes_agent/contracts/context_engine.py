"""Context engine: decides when a conversation is too long for the model, and makes it shorter.

One for the process, selected by `context.engine`. Source: plugin contract §8.4, §13 row 20.
"""

# ruff: noqa: B027 - a method that a provider may leave out does nothing

from __future__ import annotations

import abc
import copy
import logging
from collections.abc import Callable, Mapping
from typing import Any

from hermes_agent.contracts.kind import Kind, SelectedProvider, read_setting
from hermes_agent.core.calls import keywords_of

__all__ = [
    "CONTEXT_ENGINE",
    "DEFAULT_ENGINE",
    "ContextEngine",
    "choose_context_engine",
    "compress",
    "copy_engine",
    "should_compress",
]

logger = logging.getLogger(__name__)

CONTEXT_ENGINE = Kind("context_engine", "register_context_engine", "context engine", is_used=True)

DEFAULT_ENGINE = "compressor"
"""The setting for the agent's own."""

Messages = list[dict[str, Any]]


class ContextEngine(abc.ABC):
    """Keeps a conversation within what the model can read."""

    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    context_length: int = 0
    compression_count: int = 0
    threshold_percent: float = 0.75
    protect_first_n: int = 3
    protect_last_n: int = 6

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What the config calls it."""

    @abc.abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Say whether it is time; `should_compress(messages, model)` works too."""

    @abc.abstractmethod
    def compress(
        self,
        messages: Messages,
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> Messages:
        """Return the conversation, shorter; an engine takes the arguments that it names, `model` is one of them."""

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Note how many tokens the last request took: `prompt_tokens`, `completion_tokens`, `total_tokens`."""
        self.last_prompt_tokens = int(usage.get("prompt_tokens") or 0)
        self.last_completion_tokens = int(usage.get("completion_tokens") or 0)
        total = usage.get("total_tokens")
        self.last_total_tokens = int(total or self.last_prompt_tokens + self.last_completion_tokens)

    def should_compress_preflight(self, messages: Messages) -> bool:
        """Say before a request whether it is time, by a rough count."""
        return False

    def should_defer_preflight_to_real_usage(self, rough: int) -> bool:
        """Say whether the rough count is to be disregarded until the model has told the real one."""
        return False

    def has_content_to_compress(self, messages: Messages) -> bool:
        """Say whether there is anything to shorten."""
        return True

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """A conversation begins."""

    def on_session_end(self, session_id: str, messages: Messages) -> None:
        """A conversation ends."""

    def on_session_reset(self) -> None:
        """The conversation starts over: the counts go back to nothing."""
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.compression_count = 0

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools that the engine gives the model."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of its tools; `messages` may be among the keywords."""
        raise NotImplementedError(f"context engine '{self.name}' has no tool '{name}'")

    def get_status(self) -> dict[str, Any]:
        """Return the counts and limits."""
        return {
            "last_prompt_tokens": self.last_prompt_tokens,
            "threshold_tokens": self.threshold_tokens,
            "context_length": self.context_length,
            "compression_count": self.compression_count,
        }

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Another model answers from now on."""
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)


def choose_context_engine(
    engines: Mapping[str, ContextEngine], values: Mapping[str, Any]
) -> SelectedProvider[ContextEngine]:
    """Return the plugin's engine that the config names; none means the agent's own."""
    path = "context.engine"
    name = read_setting(values, path) or DEFAULT_ENGINE
    if name in engines:
        return SelectedProvider(engines[name], f"{path} names it")
    if name == DEFAULT_ENGINE:
        return SelectedProvider(None, f"{path} asks for the agent's own")
    return SelectedProvider(
        None, f"{path}='{name}' is set but no plugin registered that name; the agent's own takes its place"
    )


def copy_engine(engine: ContextEngine) -> ContextEngine | None:
    """Return an engine for one conversation; None, with a line in the log, when it cannot be copied."""
    try:
        return copy.deepcopy(engine)
    except Exception as exc:
        logger.warning(
            "context engine '%s' cannot be copied (%s: %s): it needs a __deepcopy__; the agent's own takes its place",
            engine.name,
            type(exc).__name__,
            exc,
            exc_info=True,
        )
        return None


def should_compress(engine: ContextEngine, *, prompt_tokens: int | None, messages: Messages, model: str) -> bool:
    """Call `should_compress` with the arguments that it names."""
    offered = {"prompt_tokens": prompt_tokens, "messages": messages, "model": model}
    taken = _accepted_arguments(engine.should_compress, offered)
    ask: Callable[..., Any] = engine.should_compress
    return bool(ask(**taken) if taken else ask(prompt_tokens))


def compress(engine: ContextEngine, messages: Messages, **offered: Any) -> Messages:
    """Call `compress` with the messages and those of the other arguments that it names.

    Args:
        offered: `current_tokens`, `focus_topic`, `force`, `memory_context`, `model`.

    Raises:
        TypeError: it returned no list.
    """
    shorter: Any = engine.compress(messages, **_accepted_arguments(engine.compress, offered))
    if not isinstance(shorter, list):
        raise TypeError(f"context engine '{engine.name}': compress() returned {type(shorter).__name__}, not a list")
    return shorter


def _accepted_arguments(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    names, _ = keywords_of(function)  # an engine with `**kwargs` gets what the contract names alone
    return {name: value for name, value in offered.items() if name in names}
