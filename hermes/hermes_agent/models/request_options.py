"""Options of model requests; those that a model does not take are left out.

An option is left out where the wire protocol has no field for it, and where the provider refuses it. The second is
remembered for the model, so that later requests are accepted at once.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hermes_agent.contracts.model_client import NO_OPTIONS, ModelRequest, RequestOptions
from hermes_agent.core.errors import EXIT_USAGE, ModelError, UserError
from hermes_agent.core.text import nearest_name
from hermes_agent.models.client_pool import ChosenModel

logger = logging.getLogger(__name__)

RENAMED = "max_completion_tokens"
"""The other name of `max_tokens`, which newer models of OpenAI demand."""

_OTHER_NAMES = {
    "max_tokens": (RENAMED, "max_output_tokens"),
    "reasoning_effort": ("reasoning.effort", "reasoning", "thinking", "effort", "enable_thinking", "thinking_budget"),
    "response_format": ("output_config.format", "output_format", "text.format", "json_schema"),
    "seed": ("random_seed",),
    "stop": ("stop_sequences",),
    "verbosity": ("text.verbosity",),
}
"""Other names of an option at providers."""


def find_unsupported_option(chosen: ChosenModel, options: RequestOptions) -> tuple[str, str] | None:
    """Return the first option that a model cannot take, and why, or None."""
    values = options.values()
    if not values:
        return None
    refused = next((name for name in values if name in chosen.health.refused), "")
    return (refused, chosen.health.refused[refused]) if refused else chosen.client.unsupported(chosen.name, options)


def fit_options(request: ModelRequest, chosen: ChosenModel) -> tuple[ModelRequest, dict[str, str]]:
    """Return the request without the options that the model does not take, and these with the reason."""
    left_out: dict[str, str] = {}
    if request.max_tokens is not None and chosen.health.refused.get(RENAMED):
        request = replace(request, max_tokens=None, extra={**request.extra, RENAMED: request.max_tokens})
    while found := find_unsupported_option(chosen, request.options):
        name, why = found
        if name in left_out:
            break
        left_out[name] = why
        request = request.without_option(name)
    return request, left_out


def fit_with_notices(
    request: ModelRequest, chosen: ChosenModel, said: set[tuple[str, str, str]]
) -> tuple[ModelRequest, list[str]]:
    """Return the request that the model takes, and the notices that are not yet in `said`."""
    if request.options is NO_OPTIONS and not chosen.health.refused:
        return request, []
    request, left_out = fit_options(request, chosen)
    notices = []
    for name, why in left_out.items():
        key = (chosen.client.provider, chosen.name, name)
        if key not in said:
            said.add(key)
            notices.append(left_out_notice(chosen, name, why))
            logger.warning("%s", notices[-1])
    return request, notices


def left_out_notice(chosen: ChosenModel, name: str, why: str) -> str:
    """Return the notice that an option is left out."""
    model = chosen.name or "the model"
    return f"{name} is left out for {model} of {chosen.client.provider}: {why}."


def record_refusal(error: ModelError, request: ModelRequest, chosen: ChosenModel) -> bool:
    """Remember the option that a provider's refusal names; return whether it names one that was sent."""
    if error.status not in (400, 422):
        return False
    refused, text = chosen.health.refused, str(error)
    if request.max_tokens is not None and RENAMED in text and re.search(r"\bmax_tokens\b", text):
        refused[RENAMED] = "the model demands it in place of max_tokens"
        return True
    name = refused_option(text, request.options.values())
    if not name or name in refused:
        return False
    refused[name] = "the provider refuses it"
    return True


def refused_option(text: str, options: Mapping[str, Any]) -> str:
    """Return the option that a provider's error names, or ""."""
    words = {name: "|".join(map(re.escape, (name, _camel(name), *_OTHER_NAMES.get(name, ())))) for name in options}
    return next((name for name, pattern in words.items() if re.search(rf"\b(?:{pattern})\b", text)), "")


def _camel(name: str) -> str:
    """Return a name as xAI's errors write it: presencePenalty."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# -- /model NAME key=value ---------------------------------------------------------------------------------------------


def _number(low: float, high: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = float(text)
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError
        return value

    return read


def _whole(low: int) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = int(text)
        if value < low:
            raise ValueError
        return value

    return read


def _word(*known: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if known and text not in known:
            raise ValueError
        return text

    return read


def _tool_choice(text: str) -> Any:
    return text if text in ("none", "auto", "required") else {"type": "function", "function": {"name": text}}


def _format(text: str) -> Any:
    if text in ("text", "json_object"):
        return {"type": text}
    schema = json.loads(text)
    if not isinstance(schema, dict):
        raise ValueError
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_READERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "temperature": (_number(0, 2), "a number from 0 to 2"),
    "top_p": (_number(0, 1), "a number from 0 to 1"),
    "max_tokens": (_whole(1), "a whole number from 1"),
    "stop": (_word(), "a text"),
    "seed": (_whole(-(1 << 63)), "a whole number"),
    "presence_penalty": (_number(-2, 2), "a number from -2 to 2"),
    "frequency_penalty": (_number(-2, 2), "a number from -2 to 2"),
    "reasoning_effort": (_word(*EFFORTS), ", ".join(EFFORTS)),
    "verbosity": (_word("low", "medium", "high"), "low, medium, high"),
    "tool_choice": (_tool_choice, "none, auto, required or the name of a tool"),
    "response_format": (_format, "text, json_object or a JSON schema"),
}
"""Reader and description of each option of a session."""
OPTION_NAMES = tuple(_READERS)


def split_model_text(text: str) -> tuple[str, dict[str, str]]:
    """Return the name of a model ("" if there is none) and the options of `NAME key=value …` as texts.

    Raises:
        UserError: an option is unknown, or its value is wrong; or there are two names.
    """
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise UserError(f"{text!r} cannot be read: {exc}", exit_status=EXIT_USAGE) from exc
    names, found = [word for word in words if "=" not in word], {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            continue
        if name not in _READERS:
            near = nearest_name(name, OPTION_NAMES)
            hint = f"Did you mean {near}?" if near else f"Options: {', '.join(OPTION_NAMES)}."
            raise UserError(f"{name!r} is no option of a model", hint=hint, exit_status=EXIT_USAGE)
        _read(name, value)
        found[name] = value
    if len(names) > 1:
        raise UserError(
            f"{' '.join(names)!r} is more than one model", hint="Use /model NAME key=value …", exit_status=EXIT_USAGE
        )
    return (names[0] if names else ""), found


def _read(name: str, value: str) -> Any:
    read, expected = _READERS[name]
    if not value:
        return None
    try:
        return read(value)
    except ValueError:
        raise UserError(f"{name} is {value!r}: expected {expected}", exit_status=EXIT_USAGE) from None


def change_model_text(present: str, change: str) -> str:
    """Return the model text of a session after `/model CHANGE`; `key=` removes an option."""
    (name, options), (other, given) = split_model_text(present), split_model_text(change)
    merged = {key: value for key, value in {**options, **given}.items() if value}
    words = [other or name, *(f"{key}={value}" for key, value in merged.items())]
    return shlex.join(word for word in words if word)


def describe_model(chosen: ChosenModel) -> str:
    """Return the name of a model with the options of its session, for users."""
    options = chosen.options.values()
    shown = ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in options.items()
    )
    return f"{chosen.name} ({shown})" if shown else chosen.name


def read_options(texts: Mapping[str, str]) -> RequestOptions:
    """Return the options of `split_model_text` for requests."""
    return make_options({name: value for name, text in texts.items() if (value := _read(name, text)) is not None})


def make_options(values: Mapping[str, Any]) -> RequestOptions:
    """Return options from their names in chat completions."""
    if not values:
        return NO_OPTIONS
    own: dict[str, Any] = {name: values.get(name) for name in ("max_tokens", "temperature", "tool_choice")}
    return RequestOptions(**own, extra={name: value for name, value in values.items() if name not in own})
