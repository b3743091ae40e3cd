"""Model access of plugins and auxiliary tasks: the route of a call, caps, one request with its hooks.

A request runs on the core loop and shares its clients. Source: plugin contract §5.5, §13 rows 26, 27; contract of 0.23
§10.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from hermes_agent.agent.settings import UsageCap, UsageLimits, find_unpriced, price_refusal, read_limits, usage_caps
from hermes_agent.config.settings import plain
from hermes_agent.contracts.model_client import NO_OPTIONS, ModelAnswer, ModelClient, ModelRequest, RequestOptions
from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import new_id
from hermes_agent.core.redaction import mask_arguments, redactor
from hermes_agent.hooks import HookBus
from hermes_agent.models.client_pool import ChosenModel, ClientPool, fallback_selections
from hermes_agent.models.fallback import RequestAttempts
from hermes_agent.models.model_catalog import cost_usd
from hermes_agent.models.model_routes import RouteQuestion
from hermes_agent.models.request_options import fit_options, left_out_notice, make_options, record_refusal
from hermes_agent.models.selection import ModelSelection
from hermes_agent.plugins.host_services import ModelServices
from hermes_agent.plugins.llm_types import Overrides, PluginLlmUsage
from hermes_agent.sessions import LOCAL, UsageRecord
from hermes_agent.tools import current_scope

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
"""Default time limit for an answer, in seconds."""
TASK_OPTIONS = ("temperature", "top_p", "max_tokens", "stop", "seed", "response_format", "tool_choice")
"""Options of requests in `auxiliary.<task>`; `reasoning_effort` is one of the model's own fields there."""
MAIN_MODEL = ("", "auto")
"""Values of `auxiliary.<task>.provider` that mean the provider of the conversation."""


@lazy_dataclass(frozen=True, slots=True)
class ModelRoute:
    """The model selection that answers a call, with its request settings."""

    selection: ModelSelection
    timeout_s: float = TIMEOUT_S
    """Time limit in seconds if the call gives none."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the operator adds to the request."""
    options: RequestOptions = NO_OPTIONS
    """Options of the task, such as `temperature`."""
    chain: Sequence[Any] = ()
    """Fallbacks instead of `fallback_providers`; empty means those."""


def find_route(ground: ModelServices, wanted: Overrides, *, images: bool) -> ModelRoute:
    """Return the route of a call of `ctx.llm`.

    With `images`, `auxiliary.vision` is used if it is set and the call names no provider, model or profile. No profile
    says which models of a provider accept images, so the operator's setting decides. Only a provider with its own
    client may declare that it accepts none.

    Raises:
        UserError: no model is available, or none that accepts images.
        ConfigError: the provider is unknown.
        ValueError: the provider has no such profile.
    """
    vision: Mapping[str, Any] = plain(ground.config.settings.auxiliary.vision)
    if images and not (wanted.provider or wanted.model or wanted.profile) and _is_set(vision):
        found = find_task_route(ground, vision)
    else:
        found = ModelRoute(_choose_selection(ground, wanted))
    own = found.selection.client_profile
    if images and own is not None and not own.takes_images:
        raise UserError(
            f"{found.selection.endpoint.provider.display_name_at_start} cannot see pictures.",
            hint="Name one that can: `hermes config set auxiliary.vision.provider NAME`, and `auxiliary.vision.model`.",
        )
    return found


def _choose_selection(ground: ModelServices, wanted: Overrides) -> ModelSelection:
    if wanted.provider:
        return ground.select_model(provider=wanted.provider, model=wanted.model, profile=wanted.profile)
    # with only a model given, the provider stays: the name of a model must not lead to another provider
    return _with_model(ground.select_model(profile=wanted.profile), wanted.model)


def _with_model(active: ModelSelection, model: str) -> ModelSelection:
    if not model or model == active.model:
        return active
    if active.client_profile is not None:
        raise UserError(
            f"{active.endpoint.provider.display_name_at_start} is {active.model}; {model!r} is none of its names.",
            hint="Configure a provider that has it: `hermes config set model.provider NAME`.",
        )
    return replace(active, model=model)


def _is_set(vision: Mapping[str, Any]) -> bool:
    return bool(vision.get("provider", "") not in MAIN_MODEL or vision.get("model") or vision.get("base_url"))


def task_selection(ground: ModelServices, task: Mapping[str, Any]) -> ModelSelection:
    """Return the model selection of an auxiliary task.

    Args:
        task: settings of the task (`provider`, `model`, `base_url`, `api_key`).

    Raises:
        UserError: no model is available.
        ConfigError: the provider is unknown.
    """
    provider, model = str(task.get("provider") or ""), str(task.get("model") or "")
    address, key = task.get("base_url") or "", task.get("api_key") or ""
    if provider in MAIN_MODEL and not address:
        return _with_model(ground.select_model(), model)
    if not address and not key:
        return ground.select_model(provider=provider, model=model)
    block = {"provider": provider, "default": model, "base_url": address, "api_key": key}
    return ground.select_model(settings=block)


def find_task_route(ground: ModelServices, task: Mapping[str, Any], name: str = "") -> ModelRoute:
    """Return the route of an auxiliary task; a task without a model of its own may have a rule.

    Raises:
        UserError, ConfigError: see `task_selection`.
    """
    effort = {"reasoning_effort": task["reasoning_effort"]} if task.get("reasoning_effort") else {}
    extra = {**(task.get("extra_body") or {}), **effort}
    timeout_s = float(task.get("timeout") or TIMEOUT_S)
    values = {name: task[name] for name in TASK_OPTIONS if task.get(name) is not None}
    chain = task.get("fallback_chain") or ()
    is_own = task.get("provider", "") not in MAIN_MODEL or task.get("model") or task.get("base_url")
    routed = None if is_own or not name else ground.model_routes.find(RouteQuestion(name)).selection
    return ModelRoute(routed or task_selection(ground, task), timeout_s, extra, make_options(values), chain)


class ModelCaller(LazyNamedTuple):
    """The origin of a model request, for the record."""

    cause: str
    """The auxiliary task, or `plugin`."""
    plugin: str = ""


async def request_answer(
    ground: ModelServices, way: ModelRoute, request: ModelRequest, timeout_s: float, asker: ModelCaller
) -> ModelAnswer:
    """Request an answer, with retries (`auxiliary.transient_retries`) and then with the fallbacks.

    On the core loop the call uses the host's clients; on any other loop it opens its own.

    Raises:
        UserError: a cap of the operator is reached (`limits`).
        ModelError: there is no answer, or none within `timeout_s` seconds.
    """
    shared, settings = ground.bridge.has_core_loop, ground.config.settings
    found = _caps(ground)
    refusal = await ground.bridge.run(_cap_reached, ground, found) if shared else _cap_reached(ground, found)
    if refusal:
        raise UserError(refusal, hint="Raise the limit in the config, or wait until tomorrow.")
    clients = ground.clients if shared else ClientPool()
    selection, chain = way.selection, way.chain or settings.fallback_providers
    chosen = clients.make_chosen(
        selection, lambda: fallback_selections(chain, lambda block: ground.select_model(settings=block))
    )
    if refusal := _price_refusal(ground, found, chosen):
        raise UserError(refusal)
    retries = settings.auxiliary.transient_retries
    try:
        async with asyncio.timeout(timeout_s) as limit:
            if shared:
                await ground.bridge.run(chosen.client.warm_up)
            began = time.monotonic()
            attempts = RequestAttempts(chosen, retries, partial(_price_refusal, ground, found))
            answer = await _answer_with_retries(attempts, request, limit.when() or math.inf)
            attempts.chosen.health.recover()
            record_request(ground, answer, selection.provider, asker, time.monotonic() - began)
            return answer
    except TimeoutError:
        raise ModelError(
            "unreachable",
            f"Model {request.model!r} of {selection.provider} gave no whole answer within {timeout_s:g} seconds.",
            hint="Ask for less, or give the call a longer `timeout`.",
        ) from None
    finally:
        if not shared:
            await clients.aclose()


def _limits(ground: ModelServices) -> UsageLimits:
    return read_limits(ground.config.settings)


def _account_session() -> str:
    """Return the session that a model request is charged to, or "" if there is none."""
    scope = current_scope.get()
    return "" if scope is None else scope.account or scope.session_id


def _caps(ground: ModelServices) -> list[UsageCap]:
    """Return the caps that apply to this call."""
    scope, session_id = current_scope.get(), _account_session()
    platform = "" if scope is None else scope.platform
    return usage_caps(_limits(ground), {"session_id": session_id} if session_id else {}, platform)


def _price_refusal(ground: ModelServices, found: Sequence[UsageCap], asked: ChosenModel) -> str:
    """Return why a model of unknown price may not be requested, or "" if it may.

    Log a warning if the model is allowed but its cost cannot be counted.
    """
    limits = _limits(ground)
    if refusal := price_refusal(limits, found, asked.client, asked.name):
        return refusal
    if why := find_unpriced(limits, found, asked.client, asked.name):
        logger.warning("%s: this call is not counted", why)
    return ""


def request_refusal(ground: ModelServices, selection: ModelSelection) -> str:
    """Return why a cap or an unknown price forbids a request to this model, or "" if none does.

    The call blocks, because it reads the ledger.
    """
    found = _caps(ground)
    return _cap_reached(ground, found) or _price_refusal(ground, found, ClientPool().make_chosen(selection))


def _cap_reached(ground: ModelServices, found: Sequence[UsageCap]) -> str:
    """Return why a cap of `limits` forbids any further request, or "" if none does."""
    for cap in found:
        if ground.ledger is not None and (sentence := cap.sentence(ground.ledger.totals(**cap.usage_filter))):
            return sentence
    return ""


def record_request(
    ground: ModelServices, answer: ModelAnswer, provider: str, asker: ModelCaller, seconds: float
) -> None:
    """Record the call in a worker, without waiting for it."""
    scope = current_scope.get()
    provider = answer.provider or provider
    logger.debug("model %s of %s answered for %s %s", answer.model, provider, asker.cause, asker.plugin)
    if ground.ledger is None:
        return
    note = UsageRecord(
        answer.usage,
        provider,
        answer.model,
        cause=asker.cause,
        plugin=asker.plugin,
        session_id=_account_session(),
        turn_id=scope.turn_id if scope is not None else "",
        source=scope.platform if scope is not None else "",
        principal=scope.principal if scope is not None else LOCAL,
        cost_usd=cost_usd(answer, provider),
        seconds=seconds,
    )
    ground.bridge.spawn(partial(ground.ledger.record, note))


async def _answer_with_retries(attempts: RequestAttempts, request: ModelRequest, until: float) -> ModelAnswer:
    while True:
        try:
            fitted, left_out = fit_options(attempts.request(request), attempts.chosen)
            for name, why in left_out.items():
                logger.warning("%s", left_out_notice(attempts.chosen, name, why))
            return await _answer(attempts.chosen.client, fitted)
        except ModelError as exc:
            if request.options.values() and record_refusal(exc, fitted, attempts.chosen):
                continue
            lighter, before = _drop_refused_field(request, exc), attempts.chosen
            pause_s = 0.0 if lighter else attempts.record_failure(exc)
            if pause_s is None or asyncio.get_running_loop().time() + pause_s >= until:
                raise
            logger.info("%s", exc.message if lighter else attempts.retry_notice(exc, pause_s, before).log)
        request = lighter or request
        await asyncio.sleep(pause_s)


async def _answer(client: ModelClient, request: ModelRequest) -> ModelAnswer:
    answer: ModelAnswer | None = None
    async for part in client.stream(request):
        if isinstance(part, ModelAnswer):
            answer = part
    assert answer is not None  # the last item of every stream
    return answer


def _drop_refused_field(request: ModelRequest, error: ModelError) -> ModelRequest | None:
    """Return the request without the field that the error names, or None if it names no such field."""
    if error.status not in (400, 422):
        return None
    said = str(error)
    if request.temperature is not None and "temperature" in said:
        return replace(request, temperature=None)
    if request.max_tokens is not None and "max_tokens" in said and "max_completion_tokens" in said:
        extra = {**request.extra, "max_completion_tokens": request.max_tokens}
        return replace(request, max_tokens=None, extra=extra)
    if "response_format" in request.extra and "response_format" in said:
        # the prompt asks for the same format
        return replace(request, extra={k: v for k, v in request.extra.items() if k != "response_format"})
    return None


def answer_usage(answer: ModelAnswer, provider: str) -> PluginLlmUsage:
    """Return the token usage of an answer for a plugin, with its price if known."""
    usage = answer.usage
    details = usage.details.get("prompt_tokens_details")
    written = details.get("cache_write_tokens") if isinstance(details, Mapping) else None
    written = usage.details.get("cache_creation_input_tokens") if written is None else written
    return PluginLlmUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=written if isinstance(written, int) else 0,
        cost_usd=cost_usd(answer, provider),
    )


AUXILIARY_HOOKS = ("pre_auxiliary_call", "post_auxiliary_call")
"""Hooks around each model request of an auxiliary task and of `ctx.llm`."""


async def request_with_hooks(
    ground: ModelServices,
    hooks: HookBus | None,
    caller: ModelCaller,
    purpose: str,
    route: ModelRoute,
    request: ModelRequest,
    timeout_s: float,
) -> ModelAnswer:
    """Request an answer as `request_answer` does, between the calls of the hooks of auxiliary requests."""
    work = request_answer(ground, route, request, timeout_s, caller)
    if hooks is None or not any(map(hooks.has, AUXILIARY_HOOKS)):
        return await work
    return await call_with_hooks(hooks, caller, purpose, route.selection, request, work)


async def call_with_hooks(
    hooks: HookBus,
    caller: ModelCaller,
    purpose: str,
    selection: ModelSelection,
    request: ModelRequest,
    work: Coroutine[Any, Any, ModelAnswer],
) -> ModelAnswer:
    """Await `work`, and call the observers before and after it without waiting for them."""
    messages = [message.to_dict() for message in request.messages]
    keywords = _call_keywords(caller, purpose, selection, request, messages)
    system = next((str(m.get("content") or "") for m in messages if m.get("role") == "system"), "")
    body = {"model": request.model, "messages": messages, "max_tokens": request.max_tokens}
    before, after = AUXILIARY_HOOKS
    masked = mask_arguments(body)
    shown = {"method": "POST", "body": masked}
    hooks.post(before, **keywords, request_messages=masked["messages"], system_prompt=system, request=shown)
    began = time.monotonic()
    ended: dict[str, Any] = {"status": "error", "error": "cancelled", "error_type": "CancelledError"}
    try:
        answer = await work
        ended = _answer_keywords(answer)
        return answer
    except Exception as exc:
        ended |= {"error": str(exc), "error_type": type(exc).__name__}
        raise
    finally:
        seconds = time.monotonic() - began
        timing = {"ended_at": time.time(), "api_duration": seconds, "duration_ms": round(seconds * 1000)}
        hooks.post(after, **keywords, **_NO_ANSWER | ended, **timing)


_NO_ANSWER: dict[str, Any] = {
    "finish_reason": None,
    "response_model": None,
    "usage": None,
    "response": None,
    "assistant_content_chars": 0,
    "assistant_tool_call_count": 0,
}


def _call_keywords(
    caller: ModelCaller,
    purpose: str,
    selection: ModelSelection,
    request: ModelRequest,
    messages: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the keywords that both hooks have."""
    scope = current_scope.get()
    characters = sum(len(str(message.get("content") or "")) for message in messages)
    return {
        "aux_task": caller.cause,
        "plugin_id": caller.plugin,
        "purpose": purpose,
        "session_id": scope.session_id if scope is not None else "",
        "task_id": scope.task_id if scope is not None else "",
        "turn_id": scope.turn_id if scope is not None else "",
        "platform": scope.platform if scope is not None else "",
        "api_request_id": new_id("request"),
        "retry_count": 0,
        "api_call_count": 1,
        "model": request.model,
        "provider": selection.provider,
        "base_url": selection.endpoint.base_url,
        "api_mode": selection.endpoint.provider.api_mode,
        "streaming": True,
        "started_at": time.time(),
        "message_count": len(messages),
        "tool_count": len(request.tools),
        "approx_input_tokens": characters // 4,
        "request_char_count": characters,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
    }


def _answer_keywords(answer: ModelAnswer) -> dict[str, Any]:
    """Return the keywords of an answered request."""
    usage = answer.usage
    return {
        "status": "ok",
        "error": None,
        "error_type": None,
        "finish_reason": answer.finish_reason,
        "response_model": answer.model,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "cache_read_tokens": usage.cached_tokens,
        },
        "response": {"model": answer.model, "content": redactor(answer.message.text)},
        "assistant_content_chars": len(answer.message.text),
        "assistant_tool_call_count": len(answer.message.tool_calls),
    }
