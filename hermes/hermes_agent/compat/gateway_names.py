"""Upstream's module functions over the gateway: its settings and model, and questions to a chat.

A platform adapter brings the answers to `tools.clarify_gateway` and `tools.slash_confirm`; who asks registers the
question first. Source: plugin contract §11.2, §11.3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from hermes_agent.commands.confirms import PendingConfirmations
from hermes_agent.compat.hosting import host, of_host
from hermes_agent.compat.settings import load_config
from hermes_agent.contracts.platform.enabling import GatewayConfig, gateway_config
from hermes_agent.contracts.platform.registry import PlatformRegistry
from hermes_agent.core.errors import UserError
from hermes_agent.policy import PendingQuestion

if TYPE_CHECKING:
    import httpx

__all__ = [
    "await_confirmation",
    "confirm",
    "forget_confirmation",
    "id_list",
    "gateway_model",
    "load_gateway_config",
    "mark_awaiting_text",
    "not_sent",
    "open_clarifications",
    "pending_confirmation",
    "platform_httpx_limits",
    "platform_registry",
    "resolve_gateway_clarify",
    "running_gateway",
    "runtime_agent_arguments",
]

logger = logging.getLogger(__name__)

KEEPALIVE_S = 2.0
"""Shorter than what servers allow, so that no request goes into a connection that is just being closed."""


def load_gateway_config() -> GatewayConfig:
    """Return the gateway's settings: config, environment and what the registered platforms say of themselves."""
    return gateway_config(load_config(), host().platforms)


def gateway_model(config: Mapping[str, Any] | None = None) -> str:
    """Return the name of the model that answers in chats; empty when there is none to be had.

    Args:
        config: a config whose block `model` takes the place of the one in effect.
    """
    try:
        return host().select_model(settings=None if config is None else _model_block(config)).model
    except UserError as exc:
        logger.info("no model can be had: %s", exc)
        return ""


def runtime_agent_arguments() -> dict[str, Any]:
    """Return what `AIAgent` is made with, beside `model`, to answer as the configured model does.

    `provider` names the endpoint. `api_key` and `base_url` are there and None: plugins are not given them, and
    `AIAgent` takes both from the config itself.

    Raises:
        UserError: no model can be had.
    """
    return {
        "provider": host().select_model().provider,
        "api_key": None,
        "base_url": None,
        "api_mode": None,
        "command": None,
        "args": [],
    }


def _model_block(config: Mapping[str, Any]) -> Mapping[str, Any]:
    block = config.get("model")
    return block if isinstance(block, Mapping) else {"default": block or ""}


def platform_registry() -> PlatformRegistry:
    """Return the host's own registry: what is patched on it is patched for the agent."""
    return host().platforms


def platform_httpx_limits() -> httpx.Limits | None:
    """Return limits for an adapter's HTTP client; None where httpx is not installed."""
    try:
        import httpx  # 60 ms, and most processes need none
    except ImportError:
        return None
    return httpx.Limits(max_connections=100, max_keepalive_connections=10, keepalive_expiry=KEEPALIVE_S)


def running_gateway() -> Any:
    """Return the gateway that runs in this process, None where none does; adapters have it as `gateway_runner`."""
    return host().running_gateway()


def id_list(raw: Any) -> frozenset[str]:
    """Return the ids that a setting names: a list, a number, or a text with commas."""
    given = (
        raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list | tuple | set | frozenset) else [raw]
    )
    return frozenset(text for one in given if one is not None and (text := str(one).strip()))


def not_sent(message: str) -> dict[str, object]:
    """Return the result of a message that could not be sent."""
    return {"success": False, "error": str(message)}


class _OpenClarifications(Mapping[str, PendingQuestion[str]]):
    """The open questions to people by id, as upstream's `_entries`."""

    def __getitem__(self, key: str) -> PendingQuestion[str]:
        found = host().questions.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(host().questions.ids())

    def __len__(self) -> int:
        return len(host().questions.ids())

    def __setitem__(self, key: str, value: object) -> NoReturn:
        raise TypeError(
            "the open questions take no change: the tool `clarify` asks one, and resolve_gateway_clarify(id, text)"
            " answers it"
        )

    def __delitem__(self, key: str) -> NoReturn:
        self[key] = None


open_clarifications = _OpenClarifications()


def mark_awaiting_text(clarify_id: str) -> bool:
    """Take the conversation's next message for the answer; false when the question is not open."""
    question = host().questions.get(clarify_id)
    if question is None:
        return False
    question.awaiting_text = True
    return True


def resolve_gateway_clarify(clarify_id: str, response: str) -> bool:
    """Answer an open question; false when it is not open."""
    return host().questions.answer(clarify_id, response)


await_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.register)
pending_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.get_pending)
forget_confirmation = of_host(lambda host: host.confirms, PendingConfirmations.clear)


async def confirm(session_key: str, confirm_id: str, choice: str) -> str | None:
    """Do what waits and return the reply; None when it is not that which waits, or it was cancelled silently."""
    return await host().confirms.resolve(session_key, confirm_id, choice)
