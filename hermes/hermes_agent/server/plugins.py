"""`GET /v1/plugins` and `POST /v1/plugins/reload`: how the plugins do, and new code for them. For who has the key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import UserError
from hermes_agent.server.doors import PluginDoor
from hermes_agent.server.reply import Refusal, Reply, json_reply

if TYPE_CHECKING:  # starlette is slow to import; here it only names types
    from starlette.requests import Request

__all__ = ["PluginEndpoints"]

BODY_BYTES = 65_536


class PluginEndpoints:
    """The routes."""

    def __init__(self, door: PluginDoor) -> None:
        self._door = door

    async def list(self, request: Request) -> Reply:
        """Return every plugin with its state, its errors and its account."""
        return json_reply({"plugins": self._door.report()})

    async def reload(self, request: Request) -> Reply:
        """Reload the plugin that the body names (`{"name": NAME}`), or all; 409 when one of them did not load."""
        try:
            done = await self._door.reload(await _name(request))
        except Refusal as refusal:
            return refusal.reply()
        except UserError as error:
            return Refusal(400, str(error), code="invalid_request").reply()
        failed = any(one["outcome"] == "failed" for one in done)
        return json_reply({"plugins": done}, 409 if failed else 200)


async def _name(request: Request) -> str | None:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES:
            raise Refusal(413, f"the body has more than {BODY_BYTES} bytes", code="request_too_large")
    if not body.strip():
        return None
    try:
        value: Any = json.loads(body)
    except ValueError as exc:
        raise Refusal(400, f"the body is no JSON: {exc}", code="invalid_request") from exc
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(value, dict) or not (name is None or isinstance(name, str)):
        raise Refusal(400, 'expected {"name": NAME} or nothing', code="invalid_request", param="name")
    return name or None
