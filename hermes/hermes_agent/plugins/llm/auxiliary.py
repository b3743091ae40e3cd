"""A side task asks its model: who that is, one call, and its answer in the shape of the OpenAI SDK's.

Source: plugin contract §2.5, §11.3 (`call_llm`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes_agent.contracts.auxiliary_task import TASK_DEFAULTS
from hermes_agent.models.completions import Response, to_response
from hermes_agent.models.request import ModelAnswer, ModelRequest
from hermes_agent.plugins.ground import HostServices
from hermes_agent.plugins.llm.asking import (
    MAIN_MODEL,
    TIMEOUT_S,
    ModelCaller,
    ModelRoute,
    find_task_route,
    request_answer,
)
from hermes_agent.plugins.llm.form import chat_messages

__all__ = [
    "AuxiliaryCall",
    "call_auxiliary",
    "call_auxiliary_async",
    "task_settings",
    "response_text",
]

logger = logging.getLogger(__name__)

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)


def response_text(response: Any) -> str:
    """Return the text of an OpenAI-like response, an object or a mapping, without thoughts in tags; where there is
    none, its reasoning; empty when there is neither."""
    choices = _get(response, "choices") or []
    message = _get(choices[0], "message") if choices else None
    content = _content_text(_get(message, "content"))
    spoken = _THOUGHTS.sub("", content).strip()
    if spoken:
        return spoken
    for name in ("reasoning", "reasoning_content"):
        if reasoning := _content_text(_get(message, name)).strip():
            return reasoning
    details = [_content_text(_get(d, "summary") or _get(d, "text")) for d in _get(message, "reasoning_details") or ()]
    return "\n".join(text for text in details if text).strip()


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(_get(part, "text") or "") for part in content)
    return content if isinstance(content, str) else ""


AUXILIARY_PURPOSE = "call_llm"
"""The cause of a call that names no task."""
FROM_ENVIRONMENT = ("provider", "model", "base_url", "api_key")
"""Settings that `AUXILIARY_<KEY>_<SETTING>` overrides."""


@dataclass(frozen=True, slots=True)
class AuxiliaryCall:
    """A call of `call_llm`; what is None or empty is left to the task's settings."""

    task: str | None
    messages: Sequence[Mapping[str, Any]]
    explicit: Mapping[str, Any]
    """`provider`, `model`, `base_url`, `api_key`."""
    main_runtime: Mapping[str, Any] | None = None
    """What the conversation runs on, in the same words; it stands for `auto`. None is what is configured."""
    temperature: float | None = None
    max_tokens: int | None = None
    tools: Sequence[dict[str, Any]] | None = None
    timeout_s: float | None = None
    extra: Mapping[str, Any] | None = None
    """Further fields of the request."""


def task_settings(ground: HostServices, key: str) -> dict[str, Any]:
    """Return a task's settings as they are now: environment, then `auxiliary.<key>`, then the plugin's defaults."""
    task = ground.auxiliary_tasks.get(key)
    section = ground.config.values.get("auxiliary")
    written = section.get(key) if isinstance(section, Mapping) else None
    block = {**TASK_DEFAULTS, **(task.defaults if task is not None else {})}
    block |= {k: v for k, v in written.items() if v is not None} if isinstance(written, Mapping) else {}
    named = {name: f"AUXILIARY_{key.upper()}_{name.upper()}" for name in FROM_ENVIRONMENT}
    return block | {name: value for name, variable in named.items() if (value := ground.credentials.get(variable))}


def call_auxiliary(ground: HostServices, call: AuxiliaryCall) -> Response:
    """Ask and wait, from any thread but the core loop's.

    Raises:
        UserError: there is no model to be had.
        ModelError: there is no answer.
        RuntimeError: it would block the core loop.
    """
    if ground.bridge.is_core_thread:
        raise RuntimeError("call_llm would block the core loop: await async_call_llm instead")
    way, request = _prepare_call(ground, call)
    return _read_answer(
        call,
        way,
        ground.bridge.wait_core(
            request_answer(ground, way, request, way.timeout_s, ModelCaller(call.task or AUXILIARY_PURPOSE))
        ),
    )


async def call_auxiliary_async(ground: HostServices, call: AuxiliaryCall) -> Response:
    """Do what `call_auxiliary` does, on any loop."""
    way, request = _prepare_call(ground, call)
    return _read_answer(
        call,
        way,
        await ground.bridge.on_core(
            request_answer(ground, way, request, way.timeout_s, ModelCaller(call.task or AUXILIARY_PURPOSE))
        ),
    )


def _read_answer(call: AuxiliaryCall, way: ModelRoute, answer: ModelAnswer) -> Response:
    provider = answer.provider or way.selection.provider
    tokens = answer.usage.total_tokens
    logger.info(
        "%s: task=%s provider=%s model=%s tokens=%d", AUXILIARY_PURPOSE, call.task or "", provider, answer.model, tokens
    )
    response = to_response(answer)
    response.provider = provider
    return response


def _prepare_call(ground: HostServices, call: AuxiliaryCall) -> tuple[ModelRoute, ModelRequest]:
    messages = chat_messages(call.messages)
    way = _find_route(ground, call)
    request = ModelRequest(
        model=way.selection.model,
        messages=messages,
        tools=tuple(call.tools or ()),
        max_tokens=way.selection.max_tokens if call.max_tokens is None else call.max_tokens,
        temperature=call.temperature,
        extra={**way.extra, **(call.extra or {})},
    )
    return (way if call.timeout_s is None else replace(way, timeout_s=float(call.timeout_s))), request


def _find_route(ground: HostServices, call: AuxiliaryCall) -> ModelRoute:
    settings = task_settings(ground, call.task) if call.task else {**TASK_DEFAULTS, "timeout": TIMEOUT_S}
    block = {**settings, **{k: v for k, v in call.explicit.items() if v}}
    if block["provider"] in MAIN_MODEL and not block["base_url"] and call.main_runtime:
        main = {k: v for k in FROM_ENVIRONMENT if (v := call.main_runtime.get(k))}
        block |= {**main, "model": block["model"] or main.get("model", "")}
    if block["provider"] not in MAIN_MODEL and not block["model"]:
        block["model"] = _default_model(ground, block["provider"], call.task)
    return find_task_route(ground, block)


def _default_model(ground: HostServices, provider: str, task: str | None) -> str:
    """Return the model of a provider for a task that names none."""
    active = ground.config.values.get("model")
    if isinstance(active, Mapping) and active.get("provider") == provider and active.get("default"):
        return str(active["default"])
    profile = ground.model_providers.profile(provider)
    if profile is None:
        return ""
    seeing = profile.default_vision_model() if task == "vision" else None
    return seeing or profile.default_aux_model
