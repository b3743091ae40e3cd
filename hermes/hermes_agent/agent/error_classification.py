"""Answers of `transform_api_error_classification`: plugins that know the errors of a provider better.

Source: plugin contract of 0.23 §7.2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from hermes_agent.core.errors import ContextTooLong, ModelError, ModelErrorKind
from hermes_agent.hooks import HookResult

logger = logging.getLogger(__name__)

MAX_MESSAGE = 500
REASONS: dict[str, ModelErrorKind] = {
    "auth": "auth",
    "auth_permanent": "auth",
    "billing": "payment",
    "rate_limit": "rate_limit",
    "upstream_rate_limit": "rate_limit",
    "overloaded": "overloaded",
    "server_error": "overloaded",
    "timeout": "unreachable",
    "ssl_cert_verification": "refused",
    "context_overflow": "context_too_long",
    "payload_too_large": "context_too_long",
    "long_context_tier": "context_too_long",
    "model_not_found": "unknown_model",
    "provider_policy_blocked": "refused",
    "content_policy_blocked": "refused",
    "format_error": "refused",
}
"""Upstream's reasons, and the kinds of errors that they are here."""
PASSING: ModelErrorKind = "overloaded"
FINAL: ModelErrorKind = "refused"


def reclassified(error: ModelError, answers: Iterable[HookResult]) -> ModelError:
    """Return the error that the first valid answer describes, or `error` if there is none.

    `retryable` decides for the retries if the kind does not. `message` replaces the text.
    """
    chosen: tuple[str, dict[str, Any]] | None = None
    for answer in answers:
        value = answer.value
        if answer.error is not None or not isinstance(value, dict):
            continue
        reason = _reason(value.get("reason"))
        if reason not in REASONS:
            logger.warning(
                "plugin %s classifies a model error as %r, which is no reason; ignored",
                *(answer.plugin, value.get("reason")),
                extra={"plugin": answer.plugin},
            )
        elif chosen is None:
            chosen = answer.plugin, {**value, "reason": reason}
        else:
            logger.warning("plugin %s also classifies this model error; that of %s counts", answer.plugin, chosen[0])
    return error if chosen is None else _changed(error, *chosen)


def _reason(value: Any) -> str:
    name = getattr(value, "name", value)
    return name.strip().lower() if isinstance(name, str) else ""


def _changed(error: ModelError, plugin: str, value: dict[str, Any]) -> ModelError:
    kind = REASONS[value["reason"]]
    if value.get("should_compress") is True:
        kind = "context_too_long"
    elif value.get("retryable") is True and kind == FINAL:
        kind = PASSING
    elif value.get("retryable") is False and kind in ("overloaded", "unreachable", "rate_limit"):
        kind = FINAL
    text = value.get("message")
    message = text[:MAX_MESSAGE] if isinstance(text, str) and text.strip() else error.message
    logger.info("plugin %s classifies a model error: %s is %s", plugin, error.kind, kind)
    if kind == "context_too_long" and not isinstance(error, ContextTooLong):
        return ContextTooLong(message, hint=error.hint or "", status=error.status, limit_tokens=None)
    return ModelError(kind, message, hint=error.hint or "", retry_after_s=error.retry_after_s, status=error.status)
