"""`GET /health`, `/ready`, `/metrics` and `/v1/plugins`; `POST /v1/plugins/reload`.

`/metrics` (Prometheus' text format) and `/v1/plugins` name plugins and need the key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent import __version__
from hermes_agent.core.errors import UserError
from hermes_agent.server.authentication import BEARS_KEY
from hermes_agent.server.conversations import PluginStatusProtocol
from hermes_agent.server.http_types import HttpError, HttpReply, json_reply, read_body
from hermes_agent.server.turn_slots import TurnSlots
from hermes_agent.service.shutdown import RETRY_AFTER_S

if TYPE_CHECKING:
    from hermes_agent.server.http_types import Receive, Scope


Counts = Callable[[], Mapping[str, int]]
"""Numbers for `/health` by name (`plugins`, `tools`, `sessions`); called for each request with the key."""

NO_STORE = ((b"cache-control", b"no-store"),)


class StatusEndpoints:
    """The routes of health."""

    def __init__(self, turns: TurnSlots, counts: Counts) -> None:
        self._turns = turns
        self._counts = counts

    async def health(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return 200 and the version, with numbers for requests with the key."""
        body: dict[str, Any] = {"status": "draining" if self._turns.is_closed else "ok", "version": __version__}
        if scope.get(BEARS_KEY):
            body |= self._counts()
            body |= {"turns_running": self._turns.running, "turns_waiting": self._turns.waiting}
        return json_reply(body, headers=NO_STORE)

    async def ready(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return 200 while new turns are accepted, else 503."""
        if self._turns.is_closed:
            retry = (b"retry-after", b"%d" % RETRY_AFTER_S)
            return json_reply({"status": "draining"}, 503, (*NO_STORE, retry))
        return json_reply({"status": "ready"}, headers=NO_STORE)


_TYPE = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


class MetricsEndpoint:
    """The route of the metrics.

    Args:
        counts: numbers of the agent by name.
        more: returns additional lines in the same format.
    """

    def __init__(self, turns: TurnSlots, counts: Counts, more: Callable[[], str]) -> None:
        self._turns = turns
        self._counts = counts
        self._more = more

    async def get(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return all metrics."""
        text = "".join(line + "\n" for line in self._lines()) + self._more()
        return HttpReply(200, text.encode(), _TYPE + NO_STORE)

    def _lines(self) -> Iterator[str]:
        yield "# HELP hermes_info The version that runs."
        yield "# TYPE hermes_info gauge"
        yield f'hermes_info{{version="{__version__}"}} 1'
        numbers = dict(self._counts()) | {"turns_running": self._turns.running, "turns_waiting": self._turns.waiting}
        for name, value in numbers.items():
            yield f"# HELP hermes_{name} Number of {name.replace('_', ' ')} now."
            yield f"# TYPE hermes_{name} gauge"
            yield f"hermes_{name} {value}"


BODY_BYTES = 65_536
BODY_S = 30.0


class PluginEndpoints:
    """The routes of plugins."""

    def __init__(self, plugins: PluginStatusProtocol) -> None:
        self._plugins = plugins

    async def list(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return each plugin with its state, errors and usage."""
        return json_reply({"plugins": self._plugins.report()})

    async def reload(self, scope: Scope, receive: Receive) -> HttpReply:
        """Reload the plugin that the body names (`{"name": NAME}`), or all; 409 if one failed to load."""
        try:
            done = await self._plugins.reload(await _name(scope, receive))
        except HttpError as refusal:
            return refusal.reply()
        except UserError as error:
            return HttpError(400, str(error), code="invalid_request").reply()
        failed = any(result["outcome"] == "failed" for result in done)
        return json_reply({"plugins": done}, 409 if failed else 200)


async def _name(scope: Scope, receive: Receive) -> str | None:
    body = await read_body(scope, receive, max_bytes=BODY_BYTES, timeout_s=BODY_S)
    if not body.strip():
        return None
    try:
        value: Any = json.loads(body)
    except ValueError as exc:
        raise HttpError(400, f"the body is not JSON: {exc}", code="invalid_request") from exc
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(value, dict) or not (name is None or isinstance(name, str)):
        raise HttpError(400, 'expected {"name": NAME} or nothing', code="invalid_request", param="name")
    return name or None
