"""Calls between the agent and the process of a plugin, over one socket.

A frame is a length (4 bytes, network order) and one JSON object. A call waits in the thread of its caller. What the
other side calls meanwhile on behalf of that call (`under`) is served in the same thread, so that it runs in the
caller's context: its session, its approvals, its turn. Other calls are served by a few threads.

A side that does not read or answer is noticed: `Peer` sends a ping while a call waits, and reports a side that is
silent for `stall_s`. Frames, calls and threads are bounded, since a plugin may send anything.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.isolation.values import UnusableValue, describe_error, make_error

logger = logging.getLogger(__name__)

MAX_FRAME = 32 * 2**20
MAX_WAITING = 256
"""Limit of calls of the other side that wait to be served."""
TICK_S = 0.25
CANCEL_S = 2.0
"""Seconds for a cancelled call to end."""
_HEAD = struct.Struct("!I")

current_call: ContextVar[int] = ContextVar("hermes_isolated_call", default=0)
"""Number of the other side's call for which this thread or task works; 0 for none."""

Frame = dict[str, Any]


class PeerClosed(ConnectionError):
    """The other side is gone; the text has the reason."""


class CallOverran(TimeoutError):
    """A call that did not end in time.

    Args:
        number: the number of the call, which may still run.
    """

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


class CallTarget(LazyNamedTuple):
    """What a call is made to."""

    key: str
    method: str = ""
    """A method of the object; empty calls the function itself."""


class PeerHandlers(LazyNamedTuple):
    """The functions of one side that its `Peer` calls."""

    serve: Callable[[CallTarget, Any, Any], Any]
    """Run a call of the other side with encoded arguments, and return the encoded result."""
    notice: Callable[[Frame], None]
    """Take a frame that expects no answer."""
    closed: Callable[[str], None]
    """The connection ended, with the reason."""
    stalled: Callable[[str], None] = lambda reason: None
    """The other side is silent; the function may end it."""


class Peer:
    """One end of the socket.

    Args:
        stall_s: seconds without a sign of life while a call waits until the other side counts as stalled; 0 for no
            limit.
    """

    def __init__(self, connection: socket.socket, name: str, handlers: PeerHandlers, *, stall_s: float = 0) -> None:
        self._socket, self._name, self._handlers, self._stall_s = connection, name, handlers, stall_s
        if stall_s:  # a side that does not read must not hold the thread that sends
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", max(1, int(stall_s)), 0))
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.Queue[Frame]] = {}
        self._running: set[int] = set()
        """Calls that were given up and did not end yet."""
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._queued = 0
        self._heard: float | None = None
        """When the last frame arrived; None before the first one: a process that starts may be silent."""
        self._reason = ""
        self._pool = ThreadPoolExecutor(max_workers=32, thread_name_prefix=f"hermes-{name}")
        self._reader = threading.Thread(target=self._read, name=f"hermes-{name}", daemon=True)

    @property
    def reason(self) -> str:
        """Why the connection ended; empty while it is open."""
        return self._reason

    def start(self) -> None:
        """Begin to read, and tell the other side so."""
        self._reader.start()
        self.notify({"t": "pong"})

    def join(self) -> None:
        """Wait until the connection ends."""
        self._reader.join()

    def call(
        self,
        target: CallTarget,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        limit_s: float | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Any:
        """Call the other side with encoded arguments and return the encoded result.

        Raises:
            PeerClosed: the other side ended before it answered.
            CallOverran: the time limit passed, or the caller gave up.
            Exception: the error of the other side.
        """
        number = next(self._numbers)
        inbox: queue.Queue[Frame] = queue.Queue()
        self._waiting[number] = inbox
        begun = time.monotonic()
        try:
            self._send(
                {"t": "call", "id": number, "to": list(target), "a": list(args), "k": dict(kwargs),
                 "under": current_call.get()}
            )  # fmt: skip
            while True:
                frame = self._next(inbox, begun, limit_s, cancelled, number)
                if frame["t"] == "call":
                    self._serve(frame)
                elif frame["t"] == "result":
                    return frame.get("v")
                elif frame["t"] == "closed":
                    raise PeerClosed(self._reason)
                else:
                    raise make_error(frame.get("error") or {})
        finally:
            with self._lock:
                self._waiting.pop(number, None)
            while not inbox.empty():  # calls that arrived after the caller gave up
                if (frame := inbox.get_nowait())["t"] == "call":
                    self._serve_later(frame)

    def _next(
        self,
        inbox: queue.Queue[Frame],
        begun: float,
        limit_s: float | None,
        cancelled: Callable[[], bool],
        number: int,
    ) -> Frame:
        """Return the next frame of a call; ping a silent side, and give up at the limit."""
        while True:
            if self._reason and inbox.empty():
                raise PeerClosed(self._reason)
            with contextlib.suppress(queue.Empty):
                return inbox.get(timeout=TICK_S)
            now = time.monotonic()
            if (limit_s is not None and now - begun > limit_s) or cancelled():
                self._running.add(number)
                self.notify({"t": "cancel", "id": number})
                if cancelled():
                    raise CallOverran("it was interrupted", number)
                raise CallOverran(f"it gave no answer within {limit_s:g} s", number)
            silent_s = 0.0 if self._heard is None else now - max(self._heard, begun)
            if self._stall_s and silent_s > self._stall_s:
                self._handlers.stalled(f"it gave no sign of life for {self._stall_s:g} s: a loop holds the interpreter")
                raise PeerClosed(f"it gave no sign of life for {self._stall_s:g} s")
            if self._stall_s and silent_s > self._stall_s / 3:
                self.notify({"t": "ping"})

    def is_running(self, number: int) -> bool:
        """Return whether a call that was given up still runs on the other side."""
        return number in self._running

    def notify(self, frame: Frame) -> None:
        """Send a frame that expects no answer; a closed connection is ignored."""
        with contextlib.suppress(PeerClosed, UnusableValue):
            self._send(frame)

    def close(self, reason: str = "it was ended") -> None:
        """End the connection."""
        self._end(reason)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    # -- frames ----------------------------------------------------------------------------------------------------

    def _send(self, frame: Frame) -> None:
        data = json.dumps(frame, separators=(",", ":")).encode("utf-8", "surrogatepass")
        if len(data) > MAX_FRAME:
            raise UnusableValue(f"a message of {len(data)} bytes is too long: at most {MAX_FRAME} are passed on")
        if self._reason:
            raise PeerClosed(self._reason)
        try:
            with self._sending:
                self._socket.sendall(_HEAD.pack(len(data)) + data)
        except BlockingIOError:
            self._handlers.stalled(f"it read nothing for {self._stall_s:g} s")
            self._end(f"it read nothing for {self._stall_s:g} s")
            raise PeerClosed(self._reason) from None
        except OSError as exc:
            raise PeerClosed(self._reason or f"the connection ended: {exc.strerror or exc}") from exc

    def _read(self) -> None:
        reason = "the connection ended"
        try:
            while (head := self._receive(_HEAD.size)) is not None:
                (length,) = _HEAD.unpack(head)
                if length > MAX_FRAME:
                    raise UnusableValue(f"it sent a message of {length} bytes; at most {MAX_FRAME} are accepted")
                data = self._receive(length)
                if data is None:
                    break
                frame = json.loads(data.decode("utf-8", "surrogatepass"))
                self._heard = time.monotonic()
                if isinstance(frame, dict):
                    self._take(frame)
        except (OSError, ValueError, RecursionError, KeyError, TypeError) as exc:
            reason = (
                str(exc) if isinstance(exc, UnusableValue) else f"the connection failed: {type(exc).__name__}: {exc}"
            )
        self._end(reason)

    def _receive(self, length: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < length:
            part = self._socket.recv(min(length - len(parts), 2**20))
            if not part:
                return None
            parts += part
        return bytes(parts)

    def _take(self, frame: Frame) -> None:
        kind, number = frame.get("t"), int(frame.get("id") or 0)
        if kind in ("result", "error"):
            self._running.discard(number)
            with self._lock:  # what comes under this call from now on has no thread that waits for it
                inbox = self._waiting.pop(number, None)
            if inbox is not None:
                inbox.put(frame)
        elif kind == "call":
            with self._lock:
                inbox = self._waiting.get(frame.get("under") or 0)
                is_full = inbox is not None and inbox.qsize() >= MAX_WAITING
                if inbox is not None and not is_full:
                    inbox.put(frame)
            if inbox is None:
                self._serve_later(frame)
            elif is_full:
                self._answer_error(frame, UnusableValue(f"more than {MAX_WAITING} calls wait"))
        elif kind == "ping":
            self.notify({"t": "pong"})
        elif kind != "pong":
            self._handlers.notice(frame)

    def _serve_later(self, frame: Frame) -> None:
        with self._lock:
            full = self._queued >= MAX_WAITING
            self._queued += not full
        if full:
            self._answer_error(frame, UnusableValue(f"more than {MAX_WAITING} calls wait"))
            return

        def work() -> None:
            with self._lock:
                self._queued -= 1
            self._serve(frame)

        with contextlib.suppress(RuntimeError):  # the pool is shut down
            self._pool.submit(work)

    def _serve(self, frame: Frame) -> None:
        token = current_call.set(frame["id"])
        try:
            key, method = frame["to"]
            value = self._handlers.serve(CallTarget(str(key), str(method)), frame.get("a") or [], frame.get("k") or {})
            self._send({"t": "result", "id": frame["id"], "v": value})
        except PeerClosed:
            pass
        except BaseException as exc:
            self._answer_error(frame, exc)
            if isinstance(exc, KeyboardInterrupt):  # the user ends the agent while a call waits
                raise
        finally:
            current_call.reset(token)

    def _answer_error(self, frame: Frame, exc: BaseException) -> None:
        self.notify({"t": "error", "id": frame.get("id"), "error": describe_error(exc)})

    def _end(self, reason: str) -> None:
        with self._lock:
            if self._reason:
                return
            self._reason = reason
            waiting = list(self._waiting.values())
        for inbox in waiting:
            inbox.put({"t": "closed"})
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._handlers.closed(reason)
