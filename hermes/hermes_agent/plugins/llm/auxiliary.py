"""A side task asks its model: who that is, one call, and its answer in the shape of the OpenAI SDK's.

Source: plugin contract §2.5, §11.3 (`call_llm`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes_agent.contracts.auxiliary_task import DEFAULTS
from hermes_agent.models.completions import Response, response_of
from hermes_agent.models.request import ModelAnswer, ModelRequest
from hermes_agent.plugins.ground import Ground
from hermes_agent.plugins.llm.asking import SAME, TIMEOUT_S, Asker, Route, ask, route_of
from hermes_agent.plugins.llm.form import chat_messages

__all__ = [
    "SideCall",
    "ask_now",
    "ask_soon",
    "settings_of",
    "text_of_response",
]

logger = logging.getLogger(__name__)

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)


def text_of_response(response: Any) -> str:
    """Return the text of an OpenAI-like response, an object or a mapping, without thoughts in tags; where there is
    none, its reasoning; empty when there is neither."""
    choices = _get(response, "choices") or []
    message = _get(choices[0], "message") if choices else None
    content = _text(_get(message, "content"))
    spoken = _THOUGHTS.sub("", content).strip()
    if spoken:
        return spoken
    for name in ("reasoning", "reasoning_content"):
        if reasoning := _text(_get(message, name)).strip():
            return reasoning
    details = [_text(_get(d, "summary") or _get(d, "text")) for d in _get(message, "reasoning_details") or ()]
    return "\n".join(text for text in details if text).strip()


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(_get(part, "text") or "") for part in content)
    return content if isinstance(content, str) else ""


CALL = "call_llm"
"""The cause of a call that names no task."""
FROM_ENVIRONMENT = ("provider", "model", "base_url", "api_key")
"""Settings that `AUXILIARY_<KEY>_<SETTING>` overrides."""


@dataclass(frozen=True, slots=True)
class SideCall:
    """A call of `call_llm`; what is None or empty is left to the task's settings."""

    task: str | None
    messages: Sequence[Mapping[str, Any]]
    given: Mapping[str, Any]
    """`provider`, `model`, `base_url`, `api_key`."""
    main_runtime: Mapping[str, Any] | None = None
    """What the conversation runs on, in the same words; it stands for `auto`. None is what is configured."""
    temperature: float | None = None
    max_tokens: int | None = None
    tools: Sequence[dict[str, Any]] | None = None
    timeout_s: float | None = None
    extra: Mapping[str, Any] | None = None
    """Further fields of the request."""


def settings_of(ground: Ground, key: str) -> dict[str, Any]:
    """Return a task's settings as they are now: environment, then `auxiliary.<key>`, then the plugin's defaults."""
    task = ground.auxiliary_tasks.get(key)
    section = ground.config.values.get("auxiliary")
    written = section.get(key) if isinstance(section, Mapping) else None
    block = {**DEFAULTS, **(task.defaults if task is not None else {})}
    block |= {k: v for k, v in written.items() if v is not None} if isinstance(written, Mapping) else {}
    named = {name: f"AUXILIARY_{key.upper()}_{name.upper()}" for name in FROM_ENVIRONMENT}
    return block | {name: value for name, variable in named.items() if (value := ground.credentials.get(variable))}


def ask_now(ground: Ground, call: SideCall) -> Response:
    """Ask and wait, from any thread but the core loop's.

    Raises:
        UserError: there is no model to be had.
        ModelError: there is no answer.
        RuntimeError: it would block the core loop.
    """
    if ground.bridge.is_core_here:
        raise RuntimeError("call_llm would block the core loop: await async_call_llm instead")
    way, request = _prepared(ground, call)
    return _read(call, way, ground.bridge.wait_core(ask(ground, way, request, way.timeout_s, Asker(call.task or CALL))))


async def ask_soon(ground: Ground, call: SideCall) -> Response:
    """Do what `ask_now` does, on any loop."""
    way, request = _prepared(ground, call)
    return _read(
        call, way, await ground.bridge.on_core(ask(ground, way, request, way.timeout_s, Asker(call.task or CALL)))
    )


def _read(call: SideCall, way: Route, answer: ModelAnswer) -> Response:
    provider = answer.provider or way.selection.provider
    tokens = answer.usage.total_tokens
    logger.info("%s: task=%s provider=%s model=%s tokens=%d", CALL, call.task or "", provider, answer.model, tokens)
    response = response_of(answer)
    response.provider = provider
    return response


def _prepared(ground: Ground, call: SideCall) -> tuple[Route, ModelRequest]:
    messages = chat_messages(call.messages)
    way = _route(ground, call)
    request = ModelRequest(
        model=way.selection.model,
        messages=messages,
        tools=tuple(call.tools or ()),
        max_tokens=way.selection.max_tokens if call.max_tokens is None else call.max_tokens,
        temperature=call.temperature,
        extra={**way.extra, **(call.extra or {})},
    )
    return (way if call.timeout_s is None else replace(way, timeout_s=float(call.timeout_s))), request


def _route(ground: Ground, call: SideCall) -> Route:
    settings = settings_of(ground, call.task) if call.task else {**DEFAULTS, "timeout": TIMEOUT_S}
    block = {**settings, **{k: v for k, v in call.given.items() if v}}
    if block["provider"] in SAME and not block["base_url"] and call.main_runtime:
        main = {k: v for k in FROM_ENVIRONMENT if (v := call.main_runtime.get(k))}
        block |= {**main, "model": block["model"] or main.get("model", "")}
    if block["provider"] not in SAME and not block["model"]:
        block["model"] = _default_model(ground, block["provider"], call.task)
    return route_of(ground, block)


def _default_model(ground: Ground, provider: str, task: str | None) -> str:
    """Return the model of a provider for a task that names none."""
    active = ground.config.values.get("model")
    if isinstance(active, Mapping) and active.get("provider") == provider and active.get("default"):
        return str(active["default"])
    profile = ground.model_providers.profile(provider)
    if profile is None:
        return ""
    seeing = profile.default_vision_model() if task == "vision" else None
    return seeing or profile.default_aux_model
