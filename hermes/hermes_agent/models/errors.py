"""Errors of model providers as one sentence with a remedy.

Providers agree on little but the HTTP status, so the kind of an error comes from status, code and wording together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from hermes_agent.contracts.model_provider import NotSignedIn
from hermes_agent.core.errors import ContextTooLong, ModelError, ModelErrorKind, UnsupportedOption
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.models.providers import ModelEndpoint

_NO_CREDIT = ("insufficient_quota", "insufficient_credits", "billing_hard_limit_reached")
_BAD_KEY = re.compile(r"API key not valid|(incorrect|invalid|bad|wrong) api.?key|api.?key.{0,20}invalid", re.IGNORECASE)
_UNKNOWN_MODEL = re.compile(
    r"model.{0,120}?(not found|not exist|not a valid|not available|not loaded|unknown)"
    r"|(unknown|invalid|no such|unsupported)[_ ]model|not a valid model|no endpoints found for|no models? loaded",
    re.IGNORECASE | re.DOTALL,
)
_TOO_LONG = re.compile(
    r"context[_ ]length|context[_ ]window|context[_ ]size|maximum context|(prompt|input) (is )?too long"
    r"|too many (input )?tokens|input token count|reduce the length|larger than the maximum.{0,20}token",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"(?:maximum|limit|window|size|>)\D{0,40}?(\d[\d,]{2,}\d)", re.IGNORECASE)
"""The limit in such a text: `maximum context length is 8192 tokens`, `210000 tokens > 200000 maximum`."""
_WAIT = re.compile(r"(?:try again|retry|wait)\D{0,12}((?:[\d.]+ ?(?:ms|h|m(?:in\w*)?|s(?:ec\w*)?)\s*)+)", re.I)
_OTHER_EMBEDDINGS = (
    "name a provider that has them with `hermes config set auxiliary.embeddings.provider NAME`, and"
    " `auxiliary.embeddings.model`"
)
_SPAN = re.compile(r"([\d.]+) ?(ms|h|m|s)", re.IGNORECASE)
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@lazy_dataclass(frozen=True, slots=True)
class ErrorReply:
    """The error that a provider sends in place of an answer."""

    message: str = ""
    """Its text unchanged; "" if there is no readable text."""
    code: str = ""
    """Its code: `error.code` or `error.type`."""
    status: int | None = None
    """HTTP status, or the status that an error inside a stream names."""
    retry_after_s: float | None = None
    """Seconds after which the provider allows a retry."""
    body: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The whole body, for a profile that classifies errors itself."""


def missing_key(endpoint: ModelEndpoint, model: str) -> ModelError:
    """Return the error that a required key is missing."""
    names = endpoint.provider.key_names
    name = names[0] if names else "the key"
    return ModelError(
        "no_key",
        f"There is no key for {endpoint.display_name}, which model {model!r} needs.",
        hint=f"Put {name}=… into the file .env of the home, into the environment, or give a systemd credential"
        f" of that name; or choose another provider with `hermes config set model.provider NAME`.",
    )


def not_signed_in(endpoint: ModelEndpoint, model: str, error: NotSignedIn) -> ModelError:
    """Return the error that there are no credentials to sign with."""
    said = f"{endpoint.display_name_at_start} was not asked (model {model!r}): {endpoint.quote(error.message, 400)}"
    return ModelError("no_key", said, hint=error.hint)


def invalid_key(endpoint: ModelEndpoint, model: str, why: str) -> ModelError:
    """Return the error that the key is malformed and was not sent."""
    return ModelError(
        "auth",
        f"The key for {endpoint.display_name}, which model {model!r} needs, was not sent: {why}.",
        hint=f"Look at the value of {endpoint.key_name or 'the key'}: a key is one line of letters, digits and signs.",
    )


def unreachable(endpoint: ModelEndpoint, model: str, why: str) -> ModelError:
    """Return the error that the provider did not answer."""
    hint = f"Check the network, and `model.base_url` ({endpoint.public_url})."
    if not endpoint.provider.needs_key:
        hint = f"Is the server running at {endpoint.public_url}? `model.base_url` says where it is."
    return ModelError(
        "unreachable",
        f"{endpoint.display_name_at_start} cannot be reached for model {model!r}: {endpoint.quote(why)}.",
        hint=hint,
    )


def cut_off(endpoint: ModelEndpoint, model: str, why: str, *, status: int | None = None) -> ModelError:
    """Return the error that an answer ended early."""
    return ModelError(
        "cut_off",
        f"The answer of model {model!r} from {endpoint.display_name} was cut off in the middle: {endpoint.quote(why)}.",
        hint="What came before is not the whole answer. Ask again.",
        status=status,
    )


def context_too_long(endpoint: ModelEndpoint, model: str, reply: ErrorReply) -> ModelError:
    """Return the error that the conversation exceeds the context window."""
    limit = _LIMIT.search(reply.message)
    return ContextTooLong(
        f"The conversation is too long for model {model!r} of {endpoint.display_name}.",
        hint=_quoted_reply(endpoint, reply) + "Start a new session (`/new`), or choose a model with a longer context.",
        status=reply.status,
        limit_tokens=int(re.sub(r"\D", "", limit[1])) if limit else None,
    )


def rejected_request(
    endpoint: ModelEndpoint, model: str, why: str, *, hint: str = "", status: int | None = None
) -> ModelError:
    """Return the error that the provider rejected the request."""
    return ModelError("refused", f"{endpoint.display_name_at_start} {why} (model {model!r}).", hint=hint, status=status)


def no_embeddings(endpoint: ModelEndpoint) -> UnsupportedOption:
    """Return the error that a provider has no embeddings."""
    return UnsupportedOption("model", f"{endpoint.display_name_at_start} has no embeddings: {_OTHER_EMBEDDINGS}")


def answer_without_embeddings(endpoint: ModelEndpoint, model: str) -> ModelError:
    """Return the error that a server accepts a request for embeddings, and its answer has none."""
    why = f"answered at {endpoint.public_url}/embeddings without embeddings"
    return rejected_request(endpoint, model, why, hint=f"Check `model.base_url`; or {_OTHER_EMBEDDINGS}.")


def empty_answer(endpoint: ModelEndpoint, model: str, why: str) -> ModelError:
    """Return the error that an answer has neither text nor a tool call."""
    return ModelError(
        "empty", f"{endpoint.display_name_at_start} {why} (model {model!r}).", hint="Ask again, or in other words."
    )


def not_an_api(endpoint: ModelEndpoint, model: str, reply: ErrorReply, what: str) -> ModelError:
    """Return the error that the server has another API than chat completions."""
    return rejected_request(
        endpoint,
        model,
        f"does not serve chat completions at {endpoint.public_url}: it answered with {what}",
        hint=_quoted_reply(endpoint, reply) + "Check `model.base_url`: that of most servers ends in `/v1`.",
        status=reply.status,
    )


def error_from_reply(endpoint: ModelEndpoint, model: str, reply: ErrorReply, *, streaming: bool = False) -> ModelError:
    """Return the error for the reply of a provider.

    Args:
        streaming: whether it came inside a stream that had begun; a reply of no known kind is then `cut_off`.
    """
    error = _error_of_kind(endpoint, model, reply, streaming=streaming)
    error.reply_text, error.reply_code, error.reply_body = reply.message, reply.code, reply.body
    return error


def _error_of_kind(endpoint: ModelEndpoint, model: str, reply: ErrorReply, *, streaming: bool) -> ModelError:
    status, text = reply.status, f"{reply.code} {reply.message}"
    if status == 402 or reply.code in _NO_CREDIT:
        hint = "The account has no credit left: add some, or choose another provider."
        return _other(endpoint, model, reply, "payment", hint=hint)
    client_error = status is None or status in (400, 404, 413, 422, 500)
    if status == 401 or (status in (400, 403, None) and _BAD_KEY.search(text)):
        return _bad_key(endpoint, model, reply)
    if status == 403:
        return _forbidden(endpoint, model, reply)
    if status == 429 or reply.code == "rate_limit_exceeded":
        return _rate_limit(endpoint, model, reply)
    if client_error and _TOO_LONG.search(text):
        return context_too_long(endpoint, model, reply)
    if status in (400, 404, 422, None) and _UNKNOWN_MODEL.search(text):
        return _unknown_model(endpoint, model, reply)
    if status == 404:
        return not_an_api(endpoint, model, reply, "status 404")
    if streaming:
        said = reply.message or reply.code or "it reported an error without a word about it"
        return cut_off(endpoint, model, said.strip().rstrip("."), status=status)
    if status == 408 or (status is not None and status >= 500):
        hint = "The fault is on its side: ask again later, or choose another model or provider."
        return _other(endpoint, model, reply, "overloaded", "failed", hint)
    return _other(endpoint, model, reply)


def _bad_key(endpoint: ModelEndpoint, model: str, reply: ErrorReply) -> ModelError:
    if not (endpoint.key or endpoint.provider.signs_requests):
        return missing_key(endpoint, model)
    return ModelError(
        "auth",
        f"{endpoint.display_name_at_start} did not accept {_remedy_for_key(endpoint)} for model {model!r}.",
        hint=f"Check {endpoint.key_name or _remedy_for_key(endpoint)}: "
        "it may be mistyped, expired, or of another provider.",
        status=reply.status,
    )


def _forbidden(endpoint: ModelEndpoint, model: str, reply: ErrorReply) -> ModelError:
    if not (endpoint.key or endpoint.provider.signs_requests) and endpoint.provider.key_names:
        return missing_key(endpoint, model)
    return ModelError(
        "auth",
        f"{endpoint.display_name_at_start} does not let {_remedy_for_key(endpoint)} use model {model!r}.",
        hint=_quoted_reply(endpoint, reply)
        + f"Check what {endpoint.key_name or _remedy_for_key(endpoint)} may do, or change the model.",
        status=reply.status,
    )


def _remedy_for_key(endpoint: ModelEndpoint) -> str:
    return "the key" if endpoint.key or not endpoint.provider.signs_requests else "what it was signed with"


def _rate_limit(endpoint: ModelEndpoint, model: str, reply: ErrorReply) -> ModelError:
    wait_s = reply.retry_after_s
    if wait_s is None:
        wait_s = _wait_in(reply.message)
    wait = f"wait {_seconds(wait_s)}" if wait_s is not None else "it does not say how long to wait"
    return ModelError(
        "rate_limit",
        f"{endpoint.display_name_at_start} limits how often model {model!r} may be asked: {wait}.",
        hint=_quoted_reply(endpoint, reply) + "Ask again after that, or choose another model or provider.",
        retry_after_s=wait_s,
        status=reply.status,
    )


def _unknown_model(endpoint: ModelEndpoint, model: str, reply: ErrorReply) -> ModelError:
    return ModelError(
        "unknown_model",
        f"{endpoint.display_name_at_start} has no model {model!r}.",
        hint=_quoted_reply(endpoint, reply)
        + f"Choose one of {endpoint.public_url}/models with `hermes config set model.default NAME`.",
        status=reply.status,
    )


def _other(
    endpoint: ModelEndpoint,
    model: str,
    reply: ErrorReply,
    kind: ModelErrorKind = "refused",
    did: str = "refused the request",
    hint: str = "Change what it names, or choose another model or provider.",
) -> ModelError:
    status = reply.status
    with_status = f" with status {status}" if status is not None else ""
    said = endpoint.quote(reply.message).rstrip(".")
    text = f"{endpoint.display_name_at_start} {did}{with_status}{f': {said}' if said else ''} (model {model!r})."
    return ModelError(kind, text, hint=hint, retry_after_s=reply.retry_after_s, status=status)


def _quoted_reply(endpoint: ModelEndpoint, reply: ErrorReply) -> str:
    """Return the text of the provider, to stand before the remedy, or ""."""
    text = endpoint.quote(reply.message)
    return f"It says: {text}{'' if text.endswith(('.', '!', '?', '…')) else '.'} " if text else ""


def _wait_in(message: str) -> float | None:
    """Return the seconds that a text asks to wait (`try again in 6m0.5s`), or None."""
    found = _WAIT.search(message)
    if found is None:
        return None
    try:
        return sum(float(number) * _UNIT_S[unit.lower()] for number, unit in _SPAN.findall(found[1]))
    except ValueError:
        return None


def _seconds(value: float) -> str:
    whole = max(1, math.ceil(value))
    if whole < 120:
        return f"{whole} second{'s' if whole != 1 else ''}"
    return f"{math.ceil(whole / 60)} minutes"
