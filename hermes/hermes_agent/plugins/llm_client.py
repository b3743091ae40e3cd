"""`ctx.llm`, the interface of plugins to the model, and the calls of auxiliary tasks.

A plugin uses the operator's credentials, within the permissions that the operator grants. An auxiliary task has a model
of its own. Source: plugin contract §2.5, §5, §11.3 (`call_llm`); contract of 0.23 §10.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from hermes_agent.config.settings import plain
from hermes_agent.contracts.model_client import ModelAnswer, ModelRequest
from hermes_agent.contracts.model_provider import BUILTIN_TASKS, TASK_DEFAULTS, ask_profile
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.log_context import log_context
from hermes_agent.core.messages import Message
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.hooks import HookBus
from hermes_agent.models.openai_format import Response, to_response
from hermes_agent.plugins.host_services import HostServices, ModelServices
from hermes_agent.plugins.llm_access import (
    MAIN_MODEL,
    TIMEOUT_S,
    ModelCaller,
    ModelRoute,
    answer_usage,
    find_route,
    find_task_route,
    request_with_hooks,
)
from hermes_agent.plugins.llm_types import (
    LlmPermissions,
    Overrides,
    PluginLlmCompleteResult,
    PluginLlmStructuredResult,
    PluginLlmTrustError,
    StructuredForm,
    chat_messages,
    check_overrides,
    has_images,
    known_profile,
    parse_structured,
)

logger = logging.getLogger(__name__)


TASK_REFUSAL = (
    "Plugin '{plugin}' cannot route through auxiliary task '{task}' — a plugin may only pass a task key it registered "
    "itself via ctx.register_auxiliary_task() (or a built-in key when plugins.entries.{plugin}.llm.allow_task_override "
    "is true)."
)

UsageListener = Callable[[int, int, float | None], None]


class _CallOptions(LazyNamedTuple):
    """Options that every call accepts."""

    temperature: float | None
    max_tokens: int | None
    timeout: float | None
    purpose: str | None


@lazy_dataclass(frozen=True, slots=True)
class _Call:
    """A permitted call, ready to be sent."""

    wanted: Overrides
    route: ModelRoute
    request: ModelRequest
    timeout_s: float
    purpose: str | None
    profile: str | None
    task: str | None = None


class PluginLlm:
    """The model interface of one plugin: without streaming, tools and conversation.

    Every method requests an answer from the model that the operator configured. `provider`, `model`, `agent_id` and
    `profile` need a permission of the operator (`plugins.entries.<plugin id>.llm`), which is read at each call, before
    anything is sent.

    All methods raise `PluginLlmTrustError` for a missing permission, `ValueError` for invalid arguments, `UserError` if
    no model is available and `ModelError` if the model does not answer.

    Args:
        plugin_id: key of the plugin.
        ground: the services for model requests.
        note: called for each answer with input tokens, output tokens, and US dollars or None.
        hooks: hooks to fire around each request; None fires none.
    """

    def __init__(
        self, plugin_id: str, ground: ModelServices, note: UsageListener | None = None, hooks: HookBus | None = None
    ) -> None:
        self._note = note
        self._hooks = hooks
        self.plugin_id = plugin_id
        self._services = ground
        self._policy = LlmPermissions(ground.home, plugin_id)

    def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        provider: str | None = None,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        agent_id: str | None = None,
        profile: str | None = None,
        purpose: str | None = None,
        task: str | None = None,
    ) -> PluginLlmCompleteResult:
        """Answer `messages` (role/content mappings), from any thread but the core loop's.

        Args:
            timeout: seconds; None means 30, or the `timeout` of the auxiliary task.
            purpose: text for the log and `result.audit`.
            task: an auxiliary task, the model of which answers (`auxiliary.<task>`). A built-in task needs a
                permission.

        Raises:
            RuntimeError: the call would block the core loop.
        """
        shape = _CallOptions(temperature, max_tokens, timeout, purpose)
        call = self._call(
            self._granted(provider, model, agent_id, profile), chat_messages(messages), shape, profile, task
        )
        return self._completed(call, self._wait("complete", call))

    async def acomplete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        provider: str | None = None,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
        agent_id: str | None = None,
        profile: str | None = None,
        purpose: str | None = None,
        task: str | None = None,
    ) -> PluginLlmCompleteResult:
        """Do the same as `complete`, on any loop."""
        shape = _CallOptions(temperature, max_tokens, timeout, purpose)
        call = self._call(
            self._granted(provider, model, agent_id, profile), chat_messages(messages), shape, profile, task
        )
        return self._completed(call, await self._await(call))

    def complete_structured(
        self,
        *,
        instructions: str,
        input: Sequence[Any],
        json_schema: dict[str, Any] | None = None,
        json_mode: bool = False,
        schema_name: str | None = None,
        system_prompt: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        agent_id: str | None = None,
        profile: str | None = None,
        purpose: str | None = None,
        task: str | None = None,
    ) -> PluginLlmStructuredResult:
        """Answer `instructions` about the texts and images of `input`, from any thread but the core loop's.

        Args:
            input: `PluginLlmTextInput`, `PluginLlmImageInput`, or mappings of their fields.
            json_schema: schema that the answer must match; `result.parsed` is then the value.
            json_mode: request JSON without a schema.
            schema_name: shown to the model, and in `result.audit`.

        Raises:
            ValueError: also if the answer is JSON and does not match the schema.
            RuntimeError: the call would block the core loop.
        """
        wanted = self._granted(provider, model, agent_id, profile)
        form = StructuredForm.of(
            "complete_structured",
            instructions=instructions,
            blocks=input,
            json_schema=json_schema,
            json_mode=json_mode,
            schema_name=schema_name,
            system_prompt=system_prompt,
        )
        shape = _CallOptions(temperature, max_tokens, timeout, purpose)
        call = self._call(wanted, form.messages, shape, profile, task, **form.response_format())
        return self._completed_structured(call, form, self._wait("complete_structured", call))

    async def acomplete_structured(
        self,
        *,
        instructions: str,
        input: Sequence[Any],
        json_schema: dict[str, Any] | None = None,
        json_mode: bool = False,
        schema_name: str | None = None,
        system_prompt: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
        agent_id: str | None = None,
        profile: str | None = None,
        purpose: str | None = None,
        task: str | None = None,
    ) -> PluginLlmStructuredResult:
        """Do the same as `complete_structured`, on any loop."""
        wanted = self._granted(provider, model, agent_id, profile)
        form = StructuredForm.of(
            "acomplete_structured",
            instructions=instructions,
            blocks=input,
            json_schema=json_schema,
            json_mode=json_mode,
            schema_name=schema_name,
            system_prompt=system_prompt,
        )
        shape = _CallOptions(temperature, max_tokens, timeout, purpose)
        call = self._call(wanted, form.messages, shape, profile, task, **form.response_format())
        return self._completed_structured(call, form, await self._await(call))

    def _granted(self, provider: str | None, model: str | None, agent_id: str | None, profile: str | None) -> Overrides:
        wanted = Overrides.of(provider, model, agent_id, profile)
        if any(wanted):
            check_overrides(self.plugin_id, self._policy.read(), wanted)
            known_profile(wanted.profile, self._services.config.values, LoginStore(self._services.home / "auth.json"))
        return wanted

    def _call(
        self,
        wanted: Overrides,
        messages: list[Message],
        shape: _CallOptions,
        profile: str | None,
        task: str | None,
        **extra: Any,
    ) -> _Call:
        timeout_s = None if shape.timeout is None else _seconds(shape.timeout)
        way = self._task_route(task or "", wanted)
        if way is None:
            way = find_route(self._services, wanted, images=has_images(messages))
        request = ModelRequest(
            model=way.selection.model,
            messages=messages,
            max_tokens=way.selection.max_tokens if shape.max_tokens is None else shape.max_tokens,
            temperature=shape.temperature,
            extra={**way.extra, **extra},
        )
        request = way.options.apply_to(request, first=True) if way.options.values() else request
        return _Call(wanted, way, request, timeout_s or way.timeout_s, shape.purpose, profile, task)

    def _task_route(self, task: str, wanted: Overrides) -> ModelRoute | None:
        """Return the route of an auxiliary task, or None if the call names none.

        Raises:
            PluginLlmTrustError: the plugin may not use this task.
        """
        if task in MAIN_MODEL:
            return None
        services = cast("HostServices", self._services)
        is_own = services.auxiliary_tasks.owner(task) == self.plugin_id
        if not is_own and not (task in BUILTIN_TASKS and self._policy.read().get("allow_task_override") is True):
            text = TASK_REFUSAL.format(plugin=self.plugin_id, task=task)
            logger.warning("%s", text)
            raise PluginLlmTrustError(text)
        explicit = {"provider": wanted.provider, "model": wanted.model}
        return _find_route(services, AuxiliaryCall(task, (), explicit))

    def _wait(self, method: str, call: _Call) -> ModelAnswer:
        bridge = self._services.bridge
        if bridge.is_core_thread:
            raise RuntimeError(f"ctx.llm.{method} would block the core loop: await ctx.llm.a{method} instead")
        return bridge.wait_core(self._ask(call))

    async def _await(self, call: _Call) -> ModelAnswer:
        return await self._services.bridge.on_core(self._ask(call))

    async def _ask(self, call: _Call) -> ModelAnswer:
        caller = ModelCaller(call.task or "plugin", self.plugin_id)
        purpose = call.purpose or ""
        return await request_with_hooks(
            self._services, self._hooks, caller, purpose, call.route, call.request, call.timeout_s
        )

    def _completed(self, call: _Call, answer: ModelAnswer) -> PluginLlmCompleteResult:
        result = PluginLlmCompleteResult(**self._common(call, answer))
        self._log("complete", call, result.provider, result.model, f"tokens={result.usage.total_tokens}")
        return result

    def _completed_structured(
        self, call: _Call, form: StructuredForm, answer: ModelAnswer
    ) -> PluginLlmStructuredResult:
        common = self._common(call, answer)
        if form.schema_name:
            common["audit"]["schema_name"] = form.schema_name
        content_type = "invalid"  # content type in the log for an answer that does not match
        try:
            parsed, content_type = parse_structured(form, answer.message.text)
        finally:
            came = f"content_type={content_type} tokens={common['usage'].total_tokens}"
            self._log("complete_structured", call, common["provider"], common["model"], came)
        return PluginLlmStructuredResult(**common, parsed=parsed, content_type=content_type)

    def _log(self, method: str, call: _Call, provider: str, model: str, came: str) -> None:
        plugin, purpose = self.plugin_id, call.purpose or ""
        text = "plugin_llm.%s plugin=%s provider=%s model=%s purpose=%s %s"
        with log_context(plugin=plugin):
            logger.info(text, method, plugin, provider, model, purpose, came)

    def _common(self, call: _Call, answer: ModelAnswer) -> dict[str, Any]:
        selection = call.route.selection
        provider = answer.provider or selection.provider
        usage = answer_usage(answer, provider)
        if self._note is not None:
            self._note(usage.input_tokens, usage.output_tokens, usage.cost_usd)
        return {
            "text": answer.message.text,
            "provider": call.wanted.provider or provider,
            "model": call.wanted.model or answer.model or selection.model,
            "agent_id": call.wanted.agent_id or "default",
            "usage": usage,
            "audit": {"plugin_id": self.plugin_id, "purpose": call.purpose, "profile": call.profile},
        }


def _seconds(timeout: float) -> float:
    if not isinstance(timeout, int | float) or not math.isfinite(timeout) or timeout <= 0:
        raise ValueError(f"timeout is {timeout!r}: expected a number of seconds above 0")
    return float(timeout)


_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)


def response_text(response: Any) -> str:
    """Return the text of an OpenAI-like response (an object or a mapping), else its reasoning, else ""."""
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
"""Cause of a call that names no task."""
FROM_ENVIRONMENT = ("provider", "model", "base_url", "api_key")
"""Settings that `AUXILIARY_<KEY>_<SETTING>` overrides."""


@lazy_dataclass(frozen=True, slots=True)
class AuxiliaryCall:
    """A call of `call_llm`; the task's settings replace what is None or empty."""

    task: str | None
    messages: Sequence[Mapping[str, Any]]
    explicit: Mapping[str, Any]
    """Settings of the call: `provider`, `model`, `base_url`, `api_key`."""
    main_runtime: Mapping[str, Any] | None = None
    """The same settings of the conversation; they replace `auto`. None means the configured model."""
    temperature: float | None = None
    max_tokens: int | None = None
    tools: Sequence[dict[str, Any]] | None = None
    timeout_s: float | None = None
    extra: Mapping[str, Any] | None = None
    """Additional fields of the request."""


def task_settings(ground: HostServices, key: str) -> dict[str, Any]:
    """Return the present settings of a task.

    The environment overrides `auxiliary.<key>`, which overrides the plugin's defaults.
    """
    task = ground.auxiliary_tasks.get(key)
    written = plain(ground.config.settings.auxiliary).get(key)
    block = dict(TASK_DEFAULTS if task is None else task.defaults)
    if task is not None and task.inherit_from and task.inherit_from != key:
        block = {**task_settings(ground, task.inherit_from), **task.own_defaults}
    block |= {k: v for k, v in written.items() if v is not None} if isinstance(written, Mapping) else {}
    named = {name: f"AUXILIARY_{key.upper()}_{name.upper()}" for name in FROM_ENVIRONMENT}
    return block | {name: value for name, variable in named.items() if (value := ground.credentials.get(variable))}


def call_auxiliary(ground: HostServices, call: AuxiliaryCall) -> Response:
    """Request an answer and wait for it, from any thread but the core loop's.

    Raises:
        UserError: no model is available.
        ModelError: there is no answer.
        RuntimeError: the call would block the core loop.
    """
    if ground.bridge.is_core_thread:
        raise RuntimeError("call_llm would block the core loop: await async_call_llm instead")
    way, request = _prepare_call(ground, call)
    return _read_answer(
        call,
        way,
        ground.bridge.wait_core(
            request_with_hooks(
                ground, ground.hooks, ModelCaller(call.task or AUXILIARY_PURPOSE), "", way, request, way.timeout_s
            )
        ),
    )


async def call_auxiliary_async(ground: HostServices, call: AuxiliaryCall) -> Response:
    """Do the same as `call_auxiliary`, on any loop."""
    way, request = _prepare_call(ground, call)
    return _read_answer(
        call,
        way,
        await ground.bridge.on_core(
            request_with_hooks(
                ground, ground.hooks, ModelCaller(call.task or AUXILIARY_PURPOSE), "", way, request, way.timeout_s
            )
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
    request = way.options.apply_to(request, first=True) if way.options.values() else request
    return (way if call.timeout_s is None else replace(way, timeout_s=float(call.timeout_s))), request


def _find_route(ground: HostServices, call: AuxiliaryCall) -> ModelRoute:
    settings = task_settings(ground, call.task) if call.task else {**TASK_DEFAULTS, "timeout": TIMEOUT_S}
    block = {**settings, **{k: v for k, v in call.explicit.items() if v}}
    if block["provider"] in MAIN_MODEL and not block["base_url"] and call.main_runtime:
        main = {k: v for k in FROM_ENVIRONMENT if (v := call.main_runtime.get(k))}
        block |= {**main, "model": block["model"] or main.get("model", "")}
    if block["provider"] not in MAIN_MODEL and not block["model"]:
        block["model"] = _default_model(ground, block["provider"], call.task)
    return find_task_route(ground, block, call.task or "")


def _default_model(ground: HostServices, provider: str, task: str | None) -> str:
    """Return the model of a provider for a task that names none."""
    active = ground.config.settings.model
    if active.provider == provider and active.default:
        return active.default
    if (profile := ground.model_providers.profile(provider)) is None:
        return ""
    own = ask_profile(profile, "resolve_aux_model", vision=task == "vision")
    return str(own or (profile.default_vision_model() if task == "vision" else "") or profile.default_aux_model)
