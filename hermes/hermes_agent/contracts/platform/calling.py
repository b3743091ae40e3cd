"""Call what a plugin wrote with the arguments that it takes. Source: plugin contract §8.2.2 [≠ G1], §13 row 22.

The guide's adapter has `connect(self)` and `send(self, chat_id, text)`; others name `is_reconnect`, `reply_to` and
`metadata`. This is the one place that tells them apart; everybody calls an adapter through it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from hermes_agent.contracts.platform.results import SendResult, as_send_result

__all__ = ["call_optional", "call_connect", "call_get_chat_info", "call_send", "call_supported", "accepts"]

logger = logging.getLogger(__name__)

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


async def call_connect(adapter: Any, *, is_reconnect: bool = False) -> bool:
    """Connect an adapter; one that returns nothing says yes.

    Raises:
        Exception: whatever the adapter raises.
    """
    answer = await _call(adapter.connect, (), {"is_reconnect": is_reconnect})
    return answer is None or bool(answer)


async def call_send(
    adapter: Any, chat_id: str, content: str, reply_to: str | None = None, metadata: Mapping[str, Any] | None = None
) -> SendResult:
    """Send through an adapter; what it returns becomes a `SendResult`.

    Raises:
        Exception: whatever the adapter raises.
    """
    leading = (("chat_id", chat_id), ("content", content))
    return as_send_result(await _call(adapter.send, leading, {"reply_to": reply_to, "metadata": metadata}))


async def call_get_chat_info(adapter: Any, chat_id: str) -> dict[str, Any]:
    """Return `name` and `type` of a chat; an adapter that cannot say is asked no more than that."""
    ask = getattr(adapter, "get_chat_info", None)
    found = await _call(ask, (("chat_id", chat_id),), {}) if callable(ask) else None
    return {"name": chat_id, "type": "dm", **(found if isinstance(found, Mapping) else {})}


def call_supported(
    function: Callable[..., Any], leading: tuple[tuple[str, Any], ...], offered: Mapping[str, Any]
) -> Any:
    """Call `function` with all of `leading`, and with those of `offered` that it names or `**` would take.

    Args:
        leading: passed by position; by keyword where the function takes them so only.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return function(*(value for _, value in leading))
    only_by_name = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    by_name = only_by_name | {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {name: value for name, value in leading if name in only_by_name}
    positional = [value for name, value in leading if name not in named]
    filled = {p.name for p in [p for p in parameters if p.kind in _BY_POSITION][: len(positional)]}
    taken = {n: v for n, v in offered.items() if (takes_any or n in by_name) and n not in filled}
    return function(*positional, **named, **taken)


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Say whether a function takes a keyword."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in without a signature
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


async def call_optional(adapter: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    """Call an adapter's method for its effect; None when it has none, or it fails: that is logged and no more.

    Args:
        args: passed by position.
        kwargs: left out where the method does not take them.
    """
    function = getattr(adapter, method, None)
    if not callable(function):
        return None
    try:
        value = call_supported(function, tuple(("", value) for value in args), kwargs)
        return await value if inspect.isawaitable(value) else value
    except Exception as exc:  # noqa: BLE001 - a plugin's code, called beside the answer: the answer goes on
        logger.warning("[%s] %s failed: %s: %s", _name(adapter), method, type(exc).__name__, exc)
        return None


async def _call(function: Callable[..., Any], leading: tuple[tuple[str, Any], ...], offered: Mapping[str, Any]) -> Any:
    value = call_supported(function, leading, offered)
    return await value if inspect.isawaitable(value) else value


def _name(adapter: Any) -> str:
    return str(getattr(adapter, "name", type(adapter).__name__))
