"""`GET /v1/plugins` and `POST /v1/plugins/reload`: how the plugins do, and new code for them. For who has the key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import UserError
from hermes_agent.server.body import read_body
from hermes_agent.server.doors import PluginStatusProtocol
from hermes_agent.server.reply import HttpError, HttpReply, json_reply

if TYPE_CHECKING:
    from hermes_agent.server.asgi import Receive, Scope

__all__ = ["PluginEndpoints"]

BODY_BYTES = 65_536
BODY_S = 30.0


class PluginEndpoints:
    """The routes."""

    def __init__(self, door: PluginStatusProtocol) -> None:
        self._plugins = door

    async def list(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return every plugin with its state, its errors and its account."""
        return json_reply({"plugins": self._plugins.report()})

    async def reload(self, scope: Scope, receive: Receive) -> HttpReply:
        """Reload the plugin that the body names (`{"name": NAME}`), or all; 409 when one of them did not load."""
        try:
            done = await self._plugins.reload(await _name(scope, receive))
        except HttpError as refusal:
            return refusal.reply()
        except UserError as error:
            return HttpError(400, str(error), code="invalid_request").reply()
        failed = any(one["outcome"] == "failed" for one in done)
        return json_reply({"plugins": done}, 409 if failed else 200)


async def _name(scope: Scope, receive: Receive) -> str | None:
    body = await read_body(scope, receive, max_bytes=BODY_BYTES, timeout_s=BODY_S)
    if not body.strip():
        return None
    try:
        value: Any = json.loads(body)
    except ValueError as exc:
        raise HttpError(400, f"the body is no JSON: {exc}", code="invalid_request") from exc
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(value, dict) or not (name is None or isinstance(name, str)):
        raise HttpError(400, 'expected {"name": NAME} or nothing', code="invalid_request", param="name")
    return name or None
