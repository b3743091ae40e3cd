"""`ctx.llm` itself: four methods, one way. Source: plugin contract §5."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hermes_agent.core.messages import Message
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.hooks import HookBus
from hermes_agent.models.request import ModelAnswer, ModelRequest
from hermes_agent.plugins.ground import ModelServices
from hermes_agent.plugins.llm.asking import (
    AUXILIARY_HOOKS,
    ModelCaller,
    ModelRoute,
    answer_usage,
    call_with_hooks,
    find_route,
    request_answer,
)
from hermes_agent.plugins.llm.form import (
    PluginLlmCompleteResult,
    PluginLlmStructuredResult,
    StructuredForm,
    chat_messages,
    has_images,
    parse_structured,
)
from hermes_agent.plugins.llm.trust import LlmPermissions, Overrides, check_overrides, known_profile
from hermes_agent.service.context import log_context

__all__ = ["PluginLlm"]

logger = logging.getLogger(__name__)


UsageListener = Callable[[int, int, float | None], None]


class _CallOptions(NamedTuple):
    """What a call may always say."""

    temperature: float | None
    max_tokens: int | None
    timeout: float | None
    purpose: str | None


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that may be made."""

    wanted: Overrides
    route: ModelRoute
    request: ModelRequest
    timeout_s: float
    purpose: str | None
    profile: str | None


class PluginLlm:
    """The model, for one plugin: no streaming, no tools, no conversation.

    Every method asks the model that the operator configured. `provider`, `model`, `agent_id` and `profile` need the
    operator's leave (`plugins.entries.<plugin id>.llm`), which is read at each call, before anything is sent.

    All of them raise `PluginLlmTrustError` for what is not allowed, `ValueError` for arguments that are none,
    `UserError` when no model can be had and `ModelError` when it does not answer.

    Args:
        plugin_id: key of the plugin.
        ground: where models are.
        note: told of each answer: input tokens, output tokens, dollars where the price is known.
        hooks: told of each call; None tells nobody.
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
    ) -> PluginLlmCompleteResult:
        """Answer `messages` (role/content mappings); from any thread but the core loop's.

        Args:
            timeout: seconds; None waits 30, or `auxiliary.vision.timeout` where that model is asked.
            purpose: for the log and `result.audit`.

        Raises:
            RuntimeError: it would block the core loop.
        """
        shape = _CallOptions(temperature, max_tokens, timeout, purpose)
        call = self._call(self._granted(provider, model, agent_id, profile), chat_messages(messages), shape, profile)
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
    ) -> PluginLlmCompleteResult:
        """Do what `complete` does, on any loop."""
        shape = _CallOptions(temperature, max_tokens, timeout, purpose)
        call = self._call(self._granted(provider, model, agent_id, profile), chat_messages(messages), shape, profile)
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
    ) -> PluginLlmStructuredResult:
        """Do `instructions` with the blocks of `input`, texts and pictures; from any thread but the core loop's.

        Args:
            input: `PluginLlmTextInput`, `PluginLlmImageInput`, or mappings of their fields.
            json_schema: what the answer has to match; `result.parsed` is the value then.
            json_mode: ask for JSON without a schema.
            schema_name: shown to the model, and in `result.audit`.

        Raises:
            ValueError: also when the answer is JSON and does not match.
            RuntimeError: it would block the core loop.
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
        call = self._call(wanted, form.messages, shape, profile, **form.response_format())
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
    ) -> PluginLlmStructuredResult:
        """Do what `complete_structured` does, on any loop."""
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
        call = self._call(wanted, form.messages, shape, profile, **form.response_format())
        return self._completed_structured(call, form, await self._await(call))

    def _granted(self, provider: str | None, model: str | None, agent_id: str | None, profile: str | None) -> Overrides:
        wanted = Overrides.of(provider, model, agent_id, profile)
        if any(wanted):
            check_overrides(self.plugin_id, self._policy.read(), wanted)
            known_profile(wanted.profile, self._services.config.values, LoginStore(self._services.home / "auth.json"))
        return wanted

    def _call(
        self, wanted: Overrides, messages: list[Message], shape: _CallOptions, profile: str | None, **extra: Any
    ) -> _Call:
        timeout_s = None if shape.timeout is None else _seconds(shape.timeout)
        way = find_route(self._services, wanted, images=has_images(messages))
        request = ModelRequest(
            model=way.selection.model,
            messages=messages,
            max_tokens=way.selection.max_tokens if shape.max_tokens is None else shape.max_tokens,
            temperature=shape.temperature,
            extra={**way.extra, **extra},
        )
        return _Call(wanted, way, request, timeout_s or way.timeout_s, shape.purpose, profile)

    def _wait(self, method: str, call: _Call) -> ModelAnswer:
        bridge = self._services.bridge
        if bridge.is_core_thread:
            raise RuntimeError(f"ctx.llm.{method} would block the core loop: await ctx.llm.a{method} instead")
        return bridge.wait_core(self._ask(call))

    async def _await(self, call: _Call) -> ModelAnswer:
        return await self._services.bridge.on_core(self._ask(call))

    async def _ask(self, call: _Call) -> ModelAnswer:
        """Ask, and tell who listens before and after."""
        work = request_answer(
            self._services, call.route, call.request, call.timeout_s, ModelCaller("plugin", self.plugin_id)
        )
        if self._hooks is None or not any(map(self._hooks.has, AUXILIARY_HOOKS)):
            return await work
        return await call_with_hooks(
            self._hooks, self.plugin_id, call.purpose or "", call.route.selection, call.request, work
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
        content_type = "invalid"  # what the log says of an answer that does not match
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
