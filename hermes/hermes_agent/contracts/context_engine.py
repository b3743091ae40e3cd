"""Context engine: decides when a conversation is too long for the model, and shortens it.

A process has one, selected by `context.engine`. Source: plugin contract §8.4, §13 row 20.
"""

# ruff: noqa: B027 - optional methods do nothing by default

from __future__ import annotations

import abc
import copy
import json
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
"""Name of the built-in engine in `context.engine`."""

Messages = list[dict[str, Any]]


class ContextEngine(abc.ABC):
    """An engine that keeps a conversation within the context window."""

    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    context_length: int = 0
    compression_count: int = 0
    threshold_percent: float = 0.75
    protect_first_n: int = 3
    protect_last_n: int = 6
    emit_automatic_compaction_status: bool = True
    """Whether users see a notice after a compaction that they did not request."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name that selects it in `context.engine`."""

    @abc.abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return whether to shorten now; the signature `should_compress(messages, model)` is accepted, too."""

    @abc.abstractmethod
    def compress(
        self,
        messages: Messages,
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> Messages:
        """Return the shortened conversation.

        An engine gets the arguments that it names; `model` may be another of them.
        """

    def should_compress_info(self, prompt_tokens: int | None = None) -> tuple[bool, str | None]:
        """Return whether to shorten now, and the reason for users; None for no reason."""
        return self.should_compress(prompt_tokens), None

    def prune_tool_results_only(self, messages: Messages, current_tokens: int | None = None) -> tuple[Messages, int]:
        """Return the conversation with shorter results of tools, and how many; called before a compaction."""
        return messages, 0

    def select_context(
        self,
        request_messages: Messages,
        *,
        conversation_messages: Messages | None = None,
        incoming_message: dict[str, Any] | None = None,
        budget_tokens: int = 0,
    ) -> Messages | None:
        """Return the messages to send in place of `request_messages`, or None for those.

        It is called before each model request; the history stays.

        Args:
            conversation_messages: the history.
            incoming_message: the latest message of the user.
            budget_tokens: the context window; 0 if unknown.
        """
        return None

    def on_turn_complete(self, messages: Messages, usage: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Handle the end of a turn that has an answer or was interrupted.

        Args:
            messages: a copy of the history.
            usage: the sums of the turn; None if no answer arrived.
            kwargs: `turn_id`, `session_id`, `api_call_count`, `interrupted`.
        """

    def get_automatic_compaction_status_message(
        self, *, phase: str, default_message: str, **context: Any
    ) -> str | None:
        """Return the notice after a compaction that the user did not request; None for no notice.

        Args:
            phase: `compress`.
            context: `approx_tokens`, the size before it.
        """
        return default_message if self.emit_automatic_compaction_status else None

    def clone_for_agent(self) -> ContextEngine:
        """Return the instance for one conversation: by default a deep copy."""
        return copy.deepcopy(self)

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Store the usage of the last request: `prompt_tokens`, `completion_tokens`, `total_tokens`."""
        self.last_prompt_tokens = int(usage.get("prompt_tokens") or 0)
        self.last_completion_tokens = int(usage.get("completion_tokens") or 0)
        total = usage.get("total_tokens")
        self.last_total_tokens = int(total or self.last_prompt_tokens + self.last_completion_tokens)

    def should_compress_preflight(self, messages: Messages) -> bool:
        """Return whether to shorten before a request, by an estimate."""
        return False

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        """Return whether to ignore the estimate until the model has reported its usage."""
        return False

    def has_content_to_compress(self, messages: Messages) -> bool:
        """Return whether there is anything to shorten."""
        return True

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Handle the start of a session."""

    def on_session_end(self, session_id: str, messages: Messages) -> None:
        """Handle the end of a session."""

    def on_session_reset(self) -> None:
        """Handle a session that starts over: by default, reset the counts."""
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.compression_count = 0

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools that the engine adds for the model."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Return the result of a call of such a tool as JSON; the keywords may include `messages`."""
        return json.dumps({"error": f"context engine '{self.name}' has no tool '{name}'"})

    def get_status(self) -> dict[str, Any]:
        """Return the counts and limits; `usage_percent` is the used part of the context window."""
        used = max(0, self.last_prompt_tokens)  # engines set -1 until the first request after a compaction
        return {
            "last_prompt_tokens": used,
            "threshold_tokens": self.threshold_tokens,
            "context_length": self.context_length,
            "usage_percent": min(100.0, 100 * used / self.context_length) if self.context_length else 0,
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
        """Handle a change of the model."""
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)


def choose_context_engine(
    engines: Mapping[str, ContextEngine], values: Mapping[str, Any]
) -> SelectedProvider[ContextEngine]:
    """Return the engine of a plugin that the config names, or None for the built-in engine."""
    path = "context.engine"
    name = read_setting(values, path) or DEFAULT_ENGINE
    if name in engines:
        return SelectedProvider(engines[name], f"{path} names it")
    if name == DEFAULT_ENGINE:
        return SelectedProvider(None, f"{path} names the built-in engine")
    return SelectedProvider(
        None, f"{path}='{name}' is set but no plugin registered that name; the built-in engine is used"
    )


def copy_engine(engine: ContextEngine) -> ContextEngine | None:
    """Return a copy of the engine for one conversation, or None and a log line if it cannot be copied."""
    try:
        return engine.clone_for_agent()
    except Exception as exc:
        logger.warning(
            "context engine '%s' cannot be copied (%s: %s): implement clone_for_agent; the built-in engine is used",
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
    """Call `compress` with the messages and the offered arguments that it names.

    Args:
        offered: `current_tokens`, `focus_topic`, `force`, `memory_context`, `model`.

    Raises:
        TypeError: the engine returned no list.
    """
    shorter: Any = engine.compress(messages, **_accepted_arguments(engine.compress, offered))
    if not isinstance(shorter, list):
        raise TypeError(f"context engine '{engine.name}': compress() returned {type(shorter).__name__}, not a list")
    return shorter


def _accepted_arguments(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    names, _ = keywords_of(function)  # `**kwargs` does not ask for more than the contract names
    return {name: value for name, value in offered.items() if name in names}
