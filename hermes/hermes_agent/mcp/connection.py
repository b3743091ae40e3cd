"""The connection of one MCP server: connect, call, watch, reconnect. Used on the loop of the servers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from hermes_agent.core.backoff import Backoff
from hermes_agent.core.errors import ToolFailed, UserError
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.mcp import sdk
from hermes_agent.mcp.http_transport import http_streams
from hermes_agent.mcp.sdk import Json, McpSession
from hermes_agent.mcp.server_requests import ServerRequests
from hermes_agent.mcp.settings import FailurePause, McpServerSettings
from hermes_agent.mcp.stdio_transport import StdioServer
from hermes_agent.policy.network import HostTables
from hermes_agent.tools import CallScope

logger = logging.getLogger(__name__)

T = TypeVar("T")

RECONNECTS = 5
"""Attempts with backoff; after them the server's tools are removed, and attempts follow every `RETRY_S`."""
BACKOFF = Backoff(0.5, 30.0, jitter=0.0)
RETRY_S = 300.0
ENDS_WITHIN_S = 15.0
REFRESH_S = 1.0
"""Shortest interval between two reactions to changed tools, in seconds."""
ANSWERS = (-32601, -32602)
"""Errors of the protocol that answer a call (JSON-RPC 2.0 §5.1): the server works."""
MAX_ERROR_CHARS = 500
"""Longest quoted error."""
LOST = (-32000, 32600)
"""Errors that mean the end of the session."""


class _ConnectionLost(Exception):
    """The connection was lost or not established."""


class McpConnection:
    """A server of the config.

    Args:
        tables: the operator's lists of hosts.
        publish: called with the present tools and the capabilities of the server; None removes the tools.
    """

    def __init__(
        self,
        settings: McpServerSettings,
        home: Path,
        requests: ServerRequests,
        publish: Callable[[list[Json] | None, Json], None],
        tables: HostTables,
    ) -> None:
        self._tables = tables
        self.settings = settings
        self.state = "connecting"
        """`connecting`, `connected`, `asleep`, `lost`, `failed`."""
        self.error = ""
        self.first_attempt = asyncio.Event()
        """Set after the first attempt."""
        self._home = home
        self._requests = requests
        self._publish = publish
        self._pause_after_failures = FailurePause(settings.name)
        self._session: McpSession | None = None
        self._state_known = asyncio.Event()
        """Set while it is known whether the server is connected."""
        self._wake = asyncio.Event()
        self._closing = self._changed = self._is_requested = False
        self._lost_why = ""
        self._end = asyncio.Event()
        self._child: StdioServer | None = None
        self._newest = False
        self._busy, self._used = 0, time.monotonic()
        self._task = asyncio.create_task(self._run(), name=f"mcp {settings.name}")

    # -- calls -------------------------------------------------------------------------------------------------

    async def call(self, work: Callable[[McpSession], Awaitable[T]], scope: CallScope | None) -> T:
        """Return the result of `work` at the server.

        Args:
            scope: scope of the call; requests of the server go to its conversation.

        Raises:
            ToolFailed: the call failed; the text is for the model.
        """
        name = self.settings.name
        self._pause_after_failures.check()
        session = await self._connected()
        end = self._end
        self._busy += 1
        answered, ended = asyncio.ensure_future(work(session)), asyncio.create_task(end.wait())
        try:
            with self._requests.on_behalf_of(scope):
                await asyncio.wait(
                    {answered, ended}, timeout=self.settings.timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
            if answered.done():
                answer = answered.result()
                self._pause_after_failures.succeeded()
                return answer
            why = f"did not answer within {self.settings.timeout_s:g} s"
            if ended.done():
                why = f"was lost while it worked ({self._lost_why or self._failure}); how far it came is unknown"
        except ToolFailed:  # the agent's own, about the arguments
            raise
        except Exception as exc:
            if (code := _code(exc)) in ANSWERS:
                self._pause_after_failures.succeeded()
                raise ToolFailed(f"the MCP server {name} refused: {_quote_error(name, exc)}") from exc
            why = f"failed: {_quote_error(name, exc)}"
            if code is None or code in LOST:
                lost = self._failure or _quote_error(name, exc)
                why = f"was lost while it worked ({lost}); how far it came is unknown"
                self._lose(self._failure or _error_text(exc))
        finally:
            for task in (answered, ended):
                task.cancel()
            self._busy -= 1
            self._used = time.monotonic()
            self._wake.set()
        if self._pause_after_failures.failed(why):
            self._lose(why)
        raise ToolFailed(f"the MCP server {name} {why}")

    async def _connected(self) -> McpSession:
        if self._session is None and self.state in ("asleep", "connecting", "lost"):
            self._is_requested = True
            self._wake.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._state_known.wait(), self.settings.connect_timeout_s)
        if self._session is None:
            raise ToolFailed(
                f"the MCP server {self.settings.name} is not connected ({self.error or 'it does not answer'}). "
                "It is tried again in the background: go on without it, or try later."
            )
        return self._session

    @property
    def _failure(self) -> str:
        """Why the program of the server ended, or ""."""
        return "" if self._child is None else self._child.failure

    def _lose(self, why: str) -> None:
        self._lost_why = self._lost_why or why
        self._drop_session()
        self._wake.set()

    def _drop_session(self) -> None:
        """Stop using the session; calls wait for the next one."""
        if self._session is not None:
            self._session, self.state = None, "connecting"
            self._state_known.clear()

    def _on_tools_changed(self) -> None:
        self._changed = True
        self._wake.set()

    async def close(self) -> None:
        """End the connection and the program; running calls fail."""
        self._closing = True
        self._task.cancel()  # its context managers end the connection
        await asyncio.wait({self._task}, timeout=2 * ENDS_WITHIN_S)
        self._publish(None, {})

    # -- life cycle -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while not self._closing:
            self._lost_why, connected, wait_s = "", False, 0.0
            try:
                async with self._live() as (life, session):
                    connected, failures = True, 0
                    asleep = await self._watch(life, session)
                self.state = "asleep" if asleep else "connecting"
                if asleep:
                    await self._pause(None)
                continue
            except Exception as exc:  # noqa: BLE001 - an error of a server affects it alone; logged below
                failures += 1
                self.error = _error_text(exc)
                self._newest = self._newest or _code(exc) == sdk.TOO_OLD
            lasting = failures > RECONNECTS
            self.state = "failed" if lasting else "lost"
            if not connected:  # after a loss, a call waits for the first attempt
                self._state_known.set()
            removal = "; its tools are removed" if lasting else ""
            logger.warning("MCP server %s: %s%s", self.settings.name, self.error, removal)
            if failures == RECONNECTS + 1:
                self._publish(None, {})
            self.first_attempt.set()
            wait_s = RETRY_S if lasting else BACKOFF.after(failures)
            await self._pause(wait_s)

    async def _pause(self, limit_s: float | None) -> None:
        """Wait for `limit_s` seconds; None waits until a call arrives."""
        until = None if limit_s is None else time.monotonic() + limit_s
        while not self._closing and not (until is None and self._is_requested):
            left_s = None if until is None else until - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            await self._wait_wake(left_s)

    async def _wait_wake(self, limit_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), limit_s)
        self._wake.clear()

    @contextlib.asynccontextmanager
    async def _live(self) -> AsyncIterator[tuple[asyncio.Task[None], McpSession]]:
        """Connect in a task of its own, because one task must enter and leave the SDK's contexts."""
        opened: asyncio.Future[tuple[McpSession, list[Json]]] = asyncio.get_running_loop().create_future()
        self._end = end = asyncio.Event()
        life = asyncio.create_task(self._hold(opened, end))
        life.add_done_callback(lambda _: self._wake.set())
        try:
            limit_s = self.settings.connect_timeout_s
            waited: set[asyncio.Future[Any]] = {life, opened}
            await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                if life.done() and not self._failure:
                    life.result()
                raise _ConnectionLost(self._failure or f"no connection within {limit_s:g} s")
            session, tools = opened.result()
            self._publish(tools, session.capabilities)
            self._session, self.state, self.error = session, "connected", ""
            self._used, self._is_requested = time.monotonic(), False
            logger.info("MCP server %s: connected, %d tools", self.settings.name, len(tools))
            self._state_known.set()
            self.first_attempt.set()
            yield life, session
        finally:
            self._drop_session()
            end.set()
            if opened.done():
                await asyncio.wait({life}, timeout=ENDS_WITHIN_S)
            if not life.done():
                life.cancel()
                await asyncio.wait({life}, timeout=ENDS_WITHIN_S)
            if life.done() and not life.cancelled() and (error := life.exception()) is not None:
                logger.debug("MCP server %s: ended: %r", self.settings.name, error)

    async def _hold(self, opened: asyncio.Future[tuple[McpSession, list[Json]]], end: asyncio.Event) -> None:
        settings = self.settings
        if settings.problem:
            raise UserError(settings.problem)
        child = self._child = StdioServer(settings) if settings.command else None
        transport = child.streams() if child is not None else http_streams(settings, self._home, tables=self._tables)
        try:
            async with sdk.open_session(
                transport, self._requests.callbacks(self._on_tools_changed), newest=self._newest
            ) as session:
                listening = asyncio.create_task(session.listen(self._on_tools_changed))
                try:
                    opened.set_result((session, await _tools(session)))
                    await end.wait()
                finally:
                    listening.cancel()
                    await asyncio.wait({listening})
        finally:
            if child is not None:
                await child.end()

    async def _watch(self, life: asyncio.Task[None], session: McpSession) -> bool:
        """Serve the connection until it closes; return True to stay disconnected until the next call."""
        settings = self.settings
        born = seen = time.monotonic()
        while not self._closing:
            now = time.monotonic()
            if self._lost_why or life.done():
                raise _ConnectionLost(self._failure or self._lost_why or _end_of(life))
            idle = now - self._used if not self._busy else 0.0
            if 0 < settings.idle_timeout_s <= idle:
                return True
            if 0 < settings.max_lifetime_s <= now - born and not self._busy:
                logger.info("MCP server %s: reconnected after its longest lifetime, %g s", settings.name, now - born)
                return False
            if (self._changed and now - seen >= REFRESH_S) or now - seen >= settings.keepalive_s:
                self._changed, seen = False, now
                await self._refresh(session)
                continue
            waits = [settings.keepalive_s - (now - seen), *([REFRESH_S - (now - seen)] if self._changed else [])]
            waits += [settings.idle_timeout_s - idle] if settings.idle_timeout_s and not self._busy else []
            waits += [settings.max_lifetime_s - (now - born)] if settings.max_lifetime_s and not self._busy else []
            await self._wait_wake(max(0.01, min(waits)))
        return False

    async def _refresh(self, session: McpSession) -> None:
        """List the tools again; it also checks the connection, in every revision of the protocol."""
        listing = asyncio.ensure_future(_tools(session))
        try:
            await asyncio.wait({listing}, timeout=self.settings.connect_timeout_s)
            if not listing.done():
                raise _ConnectionLost("it does not answer")
            self._publish(listing.result(), session.capabilities)
        finally:
            listing.cancel()


async def _tools(session: McpSession) -> list[Json]:
    return await session.list_all("tools") if "tools" in session.capabilities else []


def _code(error: BaseException) -> int | None:
    """Return the number of a protocol error, or None for another error."""
    code = getattr(getattr(_innermost(error), "error", None), "code", None)
    return code if isinstance(code, int) else None


def _quote_error(name: str, error: BaseException) -> str:
    """Return the text of an error as untrusted text, because the server may have written it."""
    return mark_untrusted(_error_text(error)[:MAX_ERROR_CHARS], f"MCP server {name}")


def _end_of(life: asyncio.Task[None]) -> str:
    error = None if not life.done() or life.cancelled() else life.exception()
    return "the connection ended" if error is None else _error_text(error)


def _error_text(error: BaseException) -> str:
    error = _innermost(error)
    return str(error)[:MAX_ERROR_CHARS] or type(error).__name__


def _innermost(error: BaseException) -> BaseException:
    """Return the first error inside the exception groups of the SDK."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
