"""Who listens to the calls of `ctx.llm`: `pre_auxiliary_call` and `post_auxiliary_call`, which are ours."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any

from hermes_agent.hooks import HookBus
from hermes_agent.models.request import ModelAnswer, ModelRequest
from hermes_agent.models.selection import Selection
from hermes_agent.tools import current_scope

__all__ = ["AUXILIARY_HOOKS", "told"]

AUXILIARY_HOOKS = ("pre_auxiliary_call", "post_auxiliary_call")


async def told(
    hooks: HookBus,
    plugin: str,
    purpose: str,
    selection: Selection,
    request: ModelRequest,
    work: Coroutine[Any, Any, ModelAnswer],
) -> ModelAnswer:
    """Await `work`, and tell the observers before and after; nobody is waited for."""
    scope = current_scope.get()
    keywords: dict[str, Any] = {
        "plugin_id": plugin,
        "purpose": purpose,
        "provider": selection.provider,
        "model": request.model,
        "session_id": scope.session_id if scope is not None else "",
        "turn_id": scope.turn_id if scope is not None else "",
        "message_count": len(request.messages),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "started_at": time.time(),
    }
    before, after = AUXILIARY_HOOKS
    hooks.post(before, **keywords)
    began = time.monotonic()
    ended: dict[str, Any] = {"status": "error", "error": "cancelled", "usage": {}}
    try:
        answer = await work
        usage = answer.usage
        ended = {
            "status": "ok",
            "error": "",
            "usage": {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "total_tokens": usage.total_tokens,
                "cache_read_tokens": usage.cached_tokens,
            },
        }
        return answer
    except Exception as exc:
        ended["error"] = str(exc)
        raise
    finally:
        hooks.post(after, **keywords, **ended, duration_ms=round((time.monotonic() - began) * 1000))
