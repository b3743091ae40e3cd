"""`GET /metrics`: numbers in Prometheus' text format, for who has the key: they name plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hermes_agent import __version__
from hermes_agent.server.reply import HttpReply
from hermes_agent.server.status import NO_STORE, Counts
from hermes_agent.server.turns import TurnSlots

if TYPE_CHECKING:
    from hermes_agent.server.asgi import Receive, Scope

__all__ = ["MetricsEndpoint"]

_TYPE = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


class MetricsEndpoint:
    """The route.

    Args:
        counts: numbers of the agent, by name.
        more: further lines in the same format, each ended by a line break.
    """

    def __init__(self, turns: TurnSlots, counts: Counts, more: Callable[[], str]) -> None:
        self._turns = turns
        self._counts = counts
        self._more = more

    async def get(self, scope: Scope, receive: Receive) -> HttpReply:
        """Return all of them."""
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
