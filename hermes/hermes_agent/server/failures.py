"""What went wrong in the agent, as an HTTP error.

kind of ModelError   status   why this one
no_key               503      the server cannot serve until its operator sets a key
auth, refused        502      the provider refused our request, not the caller's key
unknown_model        502      the configured model is unknown to the provider
rate_limit           429      with the provider's wait
context_too_long     400      as OpenAI: the caller's messages are too long
unreachable          503      it may work again soon
cut_off              502      the provider ended in the middle
"""

from __future__ import annotations

import logging
import re
import sqlite3

from hermes_agent.core.errors import EXIT_USAGE, AccessDenied, ModelError, RetryLater, UnsupportedOption, UserError
from hermes_agent.models.request import NO_OPTIONS, RequestOptions
from hermes_agent.server.reply import HttpError

__all__ = ["STOPPING", "interrupted_error", "http_error_of"]

logger = logging.getLogger(__name__)

STOPPING = "the agent is stopping"
STORAGE_RETRY_S = 5.0

_OPTION_NAMES = {
    "max_tokens": ("max_completion_tokens", "max_output_tokens"),
    "reasoning_effort": ("reasoning.effort", "thinking", "effort"),
    "stop": ("stop_sequences",),
    "verbosity": ("text.verbosity",),
}
"""What else providers call an option."""

_BY_KIND: dict[str, tuple[int, str, bool | None]] = {
    "no_key": (503, "model_no_key", False),
    "auth": (502, "model_auth_failed", False),
    "payment": (502, "model_no_credit", False),
    "unknown_model": (502, "model_unknown", False),
    "rate_limit": (429, "rate_limit_exceeded", None),
    "context_too_long": (400, "context_length_exceeded", None),
    "unreachable": (503, "model_unreachable", None),
    "overloaded": (502, "model_overloaded", None),
    "cut_off": (502, "model_cut_off", None),
    "empty": (502, "model_empty", None),
    "refused": (502, "model_refused", False),
}


def http_error_of(error: Exception, *, acted: bool = False, options: RequestOptions = NO_OPTIONS) -> HttpError:
    """Return the HTTP error for what a turn raised; what nobody foresaw is logged and not shown.

    Args:
        acted: a tool has run already, so the request must not be repeated unseen.
        options: what the caller set: a provider that refuses one of them refuses the caller's request.
    """
    again = False if acted else None
    if isinstance(error, HttpError):
        return error
    if isinstance(error, UnsupportedOption):
        return _option_error(error.option, error)
    if isinstance(error, ModelError):
        if error.kind == "refused" and error.status in (400, 422) and (name := _rejected_option(error, options)):
            return _option_error(name, error)
        status, code, may_retry = _BY_KIND.get(error.kind, (502, "model_error", None))
        return HttpError(
            status,
            str(error),
            code=code,
            retry_after_s=error.retry_after_s,
            may_retry=False if acted else may_retry,
        )
    if isinstance(error, RetryLater):
        return HttpError(503, str(error), code="unavailable", retry_after_s=error.after_s, may_retry=again)
    if isinstance(error, AccessDenied):
        return HttpError(403, str(error), code="session_forbidden")
    if isinstance(error, UserError) and error.exit_status == EXIT_USAGE:
        return HttpError(503, str(error), code="no_model", may_retry=False)
    if isinstance(error, UserError):
        return HttpError(500, str(error), code="agent_error", may_retry=False)
    if isinstance(error, sqlite3.OperationalError):
        logger.error("nothing can be stored: %s", error)
        text = "the agent cannot store anything now (is its disk full?)"
        return HttpError(503, text, code="storage_unavailable", retry_after_s=STORAGE_RETRY_S, may_retry=again)
    logger.error("a turn over HTTP failed", exc_info=error)
    return HttpError(500, "internal error; the log of the agent has it", code="internal_error", may_retry=again)


def _option_error(name: str, error: ModelError) -> HttpError:
    return HttpError(400, str(error), code="unsupported_parameter", param=name)


def _rejected_option(error: ModelError, options: RequestOptions) -> str:
    """Return the option that a provider's complaint is about; empty when it names none."""
    said = str(error)
    words = {name: "|".join(map(re.escape, (name, *_OPTION_NAMES.get(name, ())))) for name in options.values()}
    return next((name for name, pattern in words.items() if re.search(rf"\b(?:{pattern})\b", said)), "")


def interrupted_error(reason: str, retry_after_s: float, *, acted: bool) -> HttpError:
    """Return the error for a turn that was stopped before its end."""
    message = f"the turn was interrupted: {reason}" if reason else "the turn was interrupted"
    return HttpError(503, message, code="interrupted", retry_after_s=retry_after_s, may_retry=False if acted else None)
