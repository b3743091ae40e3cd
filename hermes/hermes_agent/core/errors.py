"""The errors of this package, by what the next actor does.

HermesError
├── UserError       shown to the user with its hint; the process ends with `exit_status`
│   ├── ConfigError     a setting is wrong: file, line and key path are named
│   ├── ModelError      a model gave no answer; `kind` says why
│   │   ├── ContextTooLong  the conversation does not fit: compaction, then a retry
│   │   └── UnsupportedOption  the caller set an option that the model does not have
│   ├── AccessDenied    the object belongs to another principal
│   └── LockHeld        another daemon uses this home
├── PluginError     a plugin failed; it is named, and the host continues
├── ToolFailed      a tool failed; the model gets the text and adapts
└── RetryLater      the same request may work after `after_s` seconds
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hermes_agent.core.messages import Usage


EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LOCKED = 75
"""EX_TEMPFAIL: another daemon holds the lock of this home."""
EXIT_CONFIG = 78
"""EX_CONFIG: the daemon does not start with this configuration, and a restart does not help."""


class HermesError(Exception):
    """Base of the errors that this package raises on purpose."""


class UserError(HermesError):
    """An error that the user or the operator can fix.

    Args:
        message: what happened, with the value, in one sentence.
        hint: what to do next; empty if the message says it.
    """

    exit_status = EXIT_FAILED

    def __init__(self, message: str, *, hint: str = "", exit_status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_status is not None:
            self.exit_status = exit_status

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class CommandFailed(UserError):
    """A slash command that did not run; the message is its answer."""


class AccessDenied(UserError):
    """Access to an object of another principal."""


class ConfigError(UserError):
    """One or more wrong settings; the message has one line for each finding."""

    exit_status = EXIT_CONFIG


class LockHeld(UserError):
    """Another daemon that uses the same home."""

    exit_status = EXIT_LOCKED


ModelErrorKind = Literal[
    "no_key",
    "auth",
    "payment",
    "unknown_model",
    "rate_limit",
    "context_too_long",
    "unreachable",
    "overloaded",
    "cut_off",
    "empty",
    "refused",
]
"""Why a model gave no answer.

`payment`: the account has no credit. `overloaded`: an error of the server (5xx, 408). `empty`: an answer without text
and without a tool call. `refused`: a retry gets the same answer.
"""


class ModelError(UserError):
    """A model request without an answer.

    Args:
        kind: the reason, which decides on a retry or a fallback.
        retry_after_s: seconds that the provider asks to wait, or None.
        status: HTTP status of the answer, or None without an answer.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        hint: str = "",
        retry_after_s: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.status = status
        self.finish_reason = ""
        """`length` or `content_filter` if an answer without text ended so; else empty."""
        self.usage: Usage | None = None
        """Tokens that the answer used, or None."""
        self.reply_text = ""
        """Text of the provider's error, unchanged; "" without an answer of it."""
        self.reply_code = ""
        """Code of the provider's error; "" if it names none."""
        self.reply_body: Mapping[str, Any] = {}
        """Body of the provider's error."""


class UnsupportedOption(ModelError):
    """An option of the caller that the model does not support.

    Args:
        option: name of the option.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__("refused", message)
        self.option = option


class ContextTooLong(ModelError):
    """A conversation that does not fit into the context window of the model.

    Args:
        limit_tokens: the context window, if the provider named it.
    """

    def __init__(
        self, message: str, *, hint: str = "", status: int | None = None, limit_tokens: int | None = None
    ) -> None:
        super().__init__("context_too_long", message, hint=hint, status=status)
        self.limit_tokens = limit_tokens


class PluginError(HermesError):
    """A failure of a plugin, or an action that it may not take.

    Args:
        plugin: key of the plugin, as in `hermes plugins list`.
    """

    def __init__(self, plugin: str, message: str) -> None:
        super().__init__(message)
        self.plugin = plugin


class ToolFailed(HermesError):
    """A failure of a tool; the text goes to the model as the `error` of the result."""


class RetryLater(HermesError):
    """A request that may work after `after_s` seconds."""

    def __init__(self, message: str, *, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s
