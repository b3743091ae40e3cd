"""Every error of ours, by what the next actor does.

HermesError
├── UserError       shown to the person with its hint; the process ends with `exit_status`
│   ├── ConfigError     a setting is wrong: file, line and key path are named
│   ├── ModelError      a model could not answer: one sentence, its `kind` says why
│   │   ├── ContextTooLong  the conversation does not fit: whoever can make it shorter asks again
│   │   └── UnsupportedOption  the caller set something that the model cannot be asked with
│   ├── NotYours        it is somebody else's
│   └── LockHeld        another daemon has this home
├── PluginError     a plugin is at fault; it is named, the host goes on
├── ToolFailed      a tool could not do it; the model is told and adapts
└── RetryLater      the same request may work after `after_s` seconds
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hermes_agent.core.messages import Usage


EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LOCKED = 75
"""EX_TEMPFAIL: another daemon holds the lock of this home."""
EXIT_CONFIG = 78
"""EX_CONFIG: the daemon does not start with this configuration, and a restart will not help."""


class HermesError(Exception):
    """Base of every error that this package raises on purpose."""


class UserError(HermesError):
    """Something that the person at the front door can put right.

    Args:
        message: one sentence: what happened, with the value.
        hint: what to do next; empty when the message says it.
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


class AccessDenied(UserError):
    """What was asked for is somebody else's."""


class ConfigError(UserError):
    """One or more settings are wrong. The message has a line per finding, ready to be printed."""

    exit_status = EXIT_CONFIG


class LockHeld(UserError):
    """Another daemon runs with the same home."""

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
"""`payment`: the account has no credit; `overloaded`: a fault on its side (5xx, 408); `empty`: an answer with
neither a word nor a call; `refused`: it will say the same again."""


class ModelError(UserError):
    """The model could not answer.

    Args:
        kind: why, for the code that decides whether to retry or to fall back.
        retry_after_s: seconds that the provider asked to wait; None when it said nothing.
        status: HTTP status of the answer; None when there was none.
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
        """Why an answer without a word is one all the same: `length` or `content_filter`; empty when it is none."""
        self.usage: Usage | None = None
        """The tokens of that answer."""


class UnsupportedOption(ModelError):
    """A model cannot be asked with something that the caller of a turn set.

    Args:
        option: its name.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__("refused", message)
        self.option = option


class ContextTooLong(ModelError):
    """The conversation does not fit into the model's context; the same one never will.

    Args:
        limit_tokens: what the model can see, where the provider said it.
    """

    def __init__(
        self, message: str, *, hint: str = "", status: int | None = None, limit_tokens: int | None = None
    ) -> None:
        super().__init__("context_too_long", message, hint=hint, status=status)
        self.limit_tokens = limit_tokens


class PluginError(HermesError):
    """A plugin did something that it may not, or failed.

    Args:
        plugin: its key as `hermes plugins list` shows it.
    """

    def __init__(self, plugin: str, message: str) -> None:
        super().__init__(message)
        self.plugin = plugin


class ToolFailed(HermesError):
    """A tool could not do what was asked; the text goes to the model as the result's `error`."""


class RetryLater(HermesError):
    """The same request may work after `after_s` seconds."""

    def __init__(self, message: str, *, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s
