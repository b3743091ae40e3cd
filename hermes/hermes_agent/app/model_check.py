"""What `hermes doctor` finds about the model: installed, reachable, key accepted, and with `--ask` answering.

A list of models proves nothing where it is open: many servers list their models without a key and refuse chat requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from hermes_agent.core.errors import ModelError, UserError
from hermes_agent.core.messages import Message
from hermes_agent.host import Host
from hermes_agent.io.installation import install_hint
from hermes_agent.models import embedded
from hermes_agent.models.embedded.availability import RUNTIME
from hermes_agent.models.infos import cost_usd, fetch_model_ids
from hermes_agent.models.request import ModelAnswer, ModelRequest
from hermes_agent.models.selection import ModelSelection
from hermes_agent.plugins.doctor import Diagnosis
from hermes_agent.plugins.llm.asking import request_refusal
from hermes_agent.sessions import UsageRecord

__all__ = ["check_model"]

QUESTION = "This is a test of the connection. Answer with the word ready and nothing else."
ASK_S = 120.0
"""Seconds in which a server has to answer the question of `--ask`."""
ASK_EMBEDDED_S = 600.0
"""The same for the embedded model, which is loaded first."""
PROBE_S = 20.0
LONGEST_ANSWER = 80
AUTHORISED = (400, 413, 422)
"""Statuses of a server that read a request without messages, and refuses it for that."""
CAUSE = "doctor"


def check_model(host: Host, *, offline: bool, ask: bool) -> Iterator[Diagnosis]:
    """Yield what is found.

    Args:
        offline: nothing is asked.
        ask: the model is asked a question. It costs what a short question costs.
    """
    try:
        selection = host.select_model()
    except UserError as exc:
        hint = "`hermes -z hello` lists the ways." if "\n" in exc.hint else exc.hint
        yield Diagnosis("wrong", "model", exc.message, hint)
        yield from _check_local_model(host)
        return
    name = f"{selection.model or '(the first of its list)'} of {selection.provider}"
    if offline:
        yield Diagnosis("ok", "model", name)
    elif selection.is_embedded:
        yield from _ask_model(host, selection, name) if ask else [Diagnosis("ok", "model", f"{name} is there")]
    else:
        yield from _check_server(host, selection, name, ask=ask)


def _check_local_model(host: Host) -> Iterator[Diagnosis]:
    """Yield what the embedded model lacks, where it was chosen or a part of it is there."""
    block = host.config.get("model")
    block = block if isinstance(block, dict) else {}
    there = embedded.check_availability(block.get("local") or {}, str(block.get("default") or ""))
    if there.weights and not there.runtime:
        text = f"the weights of {there.model} are there ({there.path}), and the runtime {RUNTIME} is not installed"
        yield Diagnosis("wrong", "model", text, f"{install_hint('local')} installs it.")
    elif there.runtime and not there.weights and block.get("provider") == "local":
        text = f"the runtime {RUNTIME} is installed, and the weights of {there.model} are not there ({there.path})"
        yield Diagnosis(
            "wrong", "model", text, "Correct model.local.path." if there.own_file else "`hermes model pull`"
        )


def _check_server(host: Host, selection: ModelSelection, name: str, *, ask: bool) -> Iterator[Diagnosis]:
    endpoint = selection.endpoint
    listed = fetch_model_ids(endpoint)
    if ask:
        findings = list(_ask_model(host, selection, name))
    elif listed is not None and endpoint.key and fetch_model_ids(replace(endpoint, key="")) is None:
        findings = [Diagnosis("ok", "model", f"{name} ({endpoint.public_url} answers)")]
    else:
        findings = [_probe(selection, name)]
    yield from findings
    if listed and selection.model and selection.model not in listed and findings[-1].level != "wrong":
        text = f"{selection.provider} does not list {selection.model}"
        yield Diagnosis("note", "model", text, f"`hermes model list {selection.provider}` shows what there is.")


def _probe(selection: ModelSelection, name: str) -> Diagnosis:
    """Return what comes of a chat request without messages: a server refuses it after it looked at the key."""
    url = selection.endpoint.public_url
    request = ModelRequest(selection.model, (), max_tokens=1)
    try:
        asyncio.run(_answer(selection, request, PROBE_S))
    except ModelError as exc:
        is_read = exc.kind == "refused" and exc.status in AUTHORISED
        if is_read or exc.kind in ("empty", "context_too_long"):
            return Diagnosis("ok", "model", f"{name} ({url} answers)")
        passing = exc.kind in ("overloaded", "rate_limit", "cut_off")
        hint = "`hermes doctor --ask` asks a question." if passing else exc.hint
        return Diagnosis("note" if passing else "wrong", "model", exc.message, hint)
    return Diagnosis("ok", "model", f"{name} ({url} answers)")


def _ask_model(host: Host, selection: ModelSelection, name: str) -> Iterator[Diagnosis]:
    """Yield how long the model took for a question, and its answer; or the error that a turn would show."""
    if refusal := request_refusal(host, selection):
        yield Diagnosis("wrong", "model", refusal, "Change `limits` in the config, or wait until tomorrow.")
        return
    request = ModelRequest(selection.model, [Message("user", QUESTION)], max_tokens=selection.max_tokens)
    began = time.monotonic()
    try:
        answer = asyncio.run(_answer(selection, request, ASK_EMBEDDED_S if selection.is_embedded else ASK_S))
    except UserError as exc:
        yield Diagnosis("wrong", "model", exc.message, exc.hint)
        return
    seconds = time.monotonic() - began
    _record(host, selection, answer, seconds)
    text = " ".join(answer.message.text.split())
    shown = text if len(text) <= LONGEST_ANSWER else f"{text[: LONGEST_ANSWER - 1]}…"
    yield Diagnosis("ok", "model", f"{name} answered in {seconds:.1f} s: {shown}")


async def _answer(selection: ModelSelection, request: ModelRequest, limit_s: float) -> ModelAnswer:
    """Ask this model alone, once.

    Raises:
        ModelError: there is no answer, or none in time.
    """
    client: Any = selection.new_client()
    answer: ModelAnswer | None = None
    try:
        async with asyncio.timeout(limit_s), aclosing(client.stream(request)) as items:
            async for item in items:
                if isinstance(item, ModelAnswer):
                    answer = item
    except TimeoutError:
        text = f"Model {request.model!r} of {selection.provider} gave no whole answer within {limit_s:g} seconds."
        hint = f"Is the server at {selection.endpoint.public_url} overloaded?" if selection.base_url else ""
        raise ModelError("unreachable", text, hint=hint) from None
    finally:
        await client.aclose()
    assert answer is not None  # the last item of every stream
    return answer


def _record(host: Host, selection: ModelSelection, answer: ModelAnswer, seconds: float) -> None:
    provider = answer.provider or selection.provider
    cost = cost_usd(answer, provider)
    host.ledger.record(UsageRecord(answer.usage, provider, answer.model, cause=CAUSE, cost_usd=cost, seconds=seconds))
