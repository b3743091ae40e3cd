"""The process of one plugin: start, calls, its end and the restart after it.

The process has one socket, its standard input, and an environment without secrets. A process that ends, gives no sign
of life or uses too much memory harms the calls that it works on, which fail with the plugin's name and the cause. It is
started again after a growing delay.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from hermes_agent.core.backoff import Backoff
from hermes_agent.core.errors import PluginError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.isolation.launchers import MEMORY, ProcessLauncher, StartedProcess
from hermes_agent.plugins.isolation.peer import (
    CANCEL_S,
    CallOverran,
    CallTarget,
    Frame,
    Peer,
    PeerClosed,
    PeerHandlers,
    current_call,
)
from hermes_agent.plugins.isolation.process_state import ProcessState, fault_text, inner_pid
from hermes_agent.plugins.isolation.references import Exchange
from hermes_agent.system.files import PRIVATE, write_atomic
from hermes_agent.tools import current_scope

logger = logging.getLogger(__name__)

PLUGIN = "plugin"
"""Key of the object of the process that loads the plugin."""
RESTARTS = Backoff(0.2, 300.0, 1.7)
STABLE_S = 600.0
"""Seconds after which earlier deaths are forgotten."""
READY_S = 10.0
"""Longest time that a call waits for a restart."""
END_S = 5.0
"""Seconds for the process to end by itself."""
MAX_LINES = 200
"""Lines of the log and of the output in `WINDOW_S` seconds that are logged."""
WINDOW_S = 10.0
MAX_LINE = 2_000
_FATAL = {signal.SIGSEGV: "segmentation fault", signal.SIGKILL: "killed", signal.SIGABRT: "abort"}


OUT_OF_MEMORY = 70
"""Exit status of a process in which an allocation failed."""


class PluginProcessDown(PluginError):
    """The process of a plugin did not carry out a call."""


class ProcessPlan(LazyNamedTuple):
    """What a process needs."""

    key: str
    """Key of the plugin."""
    launcher: ProcessLauncher
    load: Callable[[str], list[Any]]
    """Return the encoded arguments of the loading, for the mark of the process."""
    serve: Callable[[CallTarget, Any, Any], Any]
    may_start: Callable[[], str]
    """Return why the process may not be started again, or ""."""
    hook_limit_s: Callable[[], float]
    record: Path
    call_limit_s: float = 600.0
    stall_s: float = 20.0


class _Run:
    """One process, from its start to its end."""

    def __init__(self, process: StartedProcess, peer: Peer) -> None:
        self.process, self.peer = process, peer
        self.begun = time.monotonic()
        self.lines: deque[str] = deque(maxlen=20)
        self.killed_because = ""
        self.cause = ""
        self.ended = threading.Event()


class PluginProcess:
    """The process of one plugin; `exchange` has the functions and objects of both sides."""

    def __init__(self, plan: ProcessPlan) -> None:
        self._plan = plan
        self.exchange = Exchange(self.call, self._drop, lends_objects=False)
        self._run: _Run | None = None
        self._lock, self._recording = threading.Lock(), threading.Lock()
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._restarts = self._failures = 0
        self._window, self._lines = time.monotonic(), 0
        self._last_end, self._next_start, self._refusal = "", 0.0, ""
        self.loaded: Callable[[], None] = lambda: None
        """Called after each restart."""

    # -- start and end ---------------------------------------------------------------------------------------------

    def start(self, limit_s: float) -> dict[str, Any]:
        """Start the process and load the plugin; return what the process reports.

        Raises:
            PluginProcessDown: the process could not be started, or ended.
            TimeoutError: the plugin did not load in time.
            Exception: the error of the plugin.
        """
        answer = self._start_once(limit_s)
        threading.Thread(target=self._supervise, name=f"hermes-plugin-{self._plan.key}", daemon=True).start()
        return answer

    def _start_once(self, limit_s: float) -> dict[str, Any]:
        key = self._plan.key
        try:
            process = self._plan.launcher.start()
        except OSError as exc:
            raise PluginProcessDown(key, f"its process cannot be started: {exc}") from exc
        for note in process.notes:
            logger.warning("plugin %s: %s", key, note, extra={"plugin": key})
        handlers = PeerHandlers(self._plan.serve, self._take_notice, lambda reason: None, self._kill)
        run = self._run = _Run(process, Peer(process.connection, key, handlers, stall_s=self._plan.stall_s))
        if self._closing.is_set():  # `close` found the process before this one
            self._kill("the plugin is unloaded")
        threading.Thread(target=self._log_output, args=(process.output, run), name=f"hermes-{key}", daemon=True).start()
        run.peer.start()
        mark = f"{process.pid}."
        try:
            answer = run.peer.call(CallTarget(PLUGIN, "load"), self._plan.load(mark), {}, limit_s=limit_s or None)
        except BaseException as exc:
            self._kill("it did not load" if not isinstance(exc, PeerClosed) else "")
            cause = self._end_of(run)
            if isinstance(exc, PeerClosed):
                tail = f": {run.lines[-1]}" if run.lines else ""
                raise PluginProcessDown(key, f"its process ended while it loaded: {cause}{tail}") from exc
            raise
        self._write_record()
        self._ready.set()
        return answer["r"] if isinstance(answer, dict) and "r" in answer else {}

    def close(self) -> None:
        """Let the plugin run its unload callbacks, and end the process; running calls get a moment."""
        if self._closing.is_set():
            return
        self._closing.set()
        run = self._run
        if run is None:
            return
        with contextlib.suppress(Exception):
            run.peer.call(CallTarget(PLUGIN, "close"), [], {}, limit_s=END_S)
        run.peer.close()
        try:
            run.process.wait(END_S)
        except TimeoutError:
            self._kill("it did not end")
        self._end_of(run)
        with self._recording, contextlib.suppress(OSError):
            self._plan.record.unlink(missing_ok=True)

    def _supervise(self) -> None:
        """Start the process again whenever it ends, until `close`."""
        key = self._plan.key
        while True:
            run = self._run
            assert run is not None
            run.peer.join()
            self._ready.clear()
            cause = self._end_of(run)
            if self._closing.is_set():
                return
            self._failures = 1 if time.monotonic() - run.begun > STABLE_S else self._failures + 1
            while True:
                delay_s = RESTARTS.after(self._failures)
                self._last_end, self._next_start = cause, time.monotonic() + delay_s
                self._write_record()
                logger.warning(
                    "plugin %s: its process ended: %s; it is started again in %.1f s", key, cause, delay_s,
                    extra={"plugin": key},
                )  # fmt: skip
                if self._closing.wait(delay_s):
                    return
                self._refusal = self._plan.may_start()
                if self._refusal:
                    logger.warning("plugin %s: not started again: %s", key, self._refusal, extra={"plugin": key})
                    self._write_record()
                    return
                try:
                    self._restarts += 1
                    self._start_once(60.0)
                    self.loaded()
                    break
                except Exception as exc:  # noqa: BLE001 - also an error of the plugin
                    if self._closing.is_set():
                        return
                    self._failures += 1
                    cause = f"{type(exc).__name__}: {exc}"

    def _end_of(self, run: _Run) -> str:
        """Wait for the end of a process and return its cause in words."""
        if run.ended.is_set():
            return run.cause
        try:
            end = run.process.wait(END_S)
        except TimeoutError:
            run.process.kill()
            end = run.process.wait(None)
        code = end.code or 0
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if run.killed_because:
            cause = run.killed_because
        elif code == OUT_OF_MEMORY or MEMORY in " ".join(end.reached):
            cause = "it used more memory than `plugins.host.memory_mb` allows"
        elif end.code is None:
            cause = "its unit was ended"
        elif number:
            with contextlib.suppress(ValueError):
                named = signal.Signals(number)
                run.cause = f"{_FATAL.get(named, 'signal')} ({named.name})"
            cause = run.cause or f"signal {number}"
        else:
            cause = f"exit status {code}" if code or not run.peer.reason.startswith("it ") else run.peer.reason
        run.cause = cause
        run.ended.set()
        return cause

    def _kill(self, reason: str) -> None:
        run = self._run
        if run is not None and not run.ended.is_set():
            run.killed_because = run.killed_because or reason
            run.process.kill()

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, target: CallTarget, args: Any, kwargs: Any) -> Any:
        """Call the process with encoded arguments and return the encoded result.

        Raises:
            PluginProcessDown: there is no process, or it ended during the call.
            TimeoutError: the call exceeded its limit, or was interrupted.
            Exception: the error of the plugin.
        """
        run = self._running()
        scope = current_scope.get()
        cancelled = (lambda: False) if scope is None else scope.cancelled.is_set
        limit_s = self._limit_of(target)
        try:
            return run.peer.call(target, args, kwargs, limit_s=limit_s, cancelled=cancelled)
        except PeerClosed:
            run.ended.wait(END_S)
            text = f"its process ended during the call: {run.cause or run.peer.reason}; it is started again"
            raise PluginProcessDown(self._plan.key, f"plugin `{self._plan.key}`: {text}") from None
        except CallOverran as exc:
            interrupted = limit_s is None or "interrupted" in str(exc)
            hooked = target.key.startswith("register_hook:")
            grace_s = self._plan.call_limit_s if interrupted or hooked else CANCEL_S
            timer = threading.Timer(grace_s, self._end_overrun, (run, exc.number, str(exc)))
            timer.daemon = True
            timer.start()
            raise TimeoutError(f"plugin `{self._plan.key}`: {exc}") from None

    def _limit_of(self, target: CallTarget) -> float | None:
        if target.key.startswith("register_hook:"):
            return self._plan.hook_limit_s()
        if target.key.startswith("register_middleware:") and "_execution" in target.key:
            return None  # the middleware waits for the call that it wraps
        return self._plan.call_limit_s

    def _end_overrun(self, run: _Run, number: int, text: str) -> None:
        """End a process that works on a call that was given up."""
        if run is self._run and run.peer.is_running(number) and not run.ended.is_set():
            self._kill(f"a call went on after its end: {text}")

    def _running(self) -> _Run:
        key = self._plan.key
        serves = current_call.get() and self._run is not None  # a call of the process that loads the plugin
        if not self._ready.is_set() and not serves:
            wait_s = self._next_start - time.monotonic()
            if self._closing.is_set() or self._refusal or wait_s > READY_S or not self._ready.wait(READY_S):
                why = self._refusal or (f"it starts again in {max(wait_s, 0):.0f} s" if not self._closing.is_set()
                                        else "the plugin is unloaded")  # fmt: skip
                last = f"; it ended before: {self._last_end}" if self._last_end else ""
                raise PluginProcessDown(key, f"plugin `{key}`: its process does not run: {why}{last}")
        run = self._run
        assert run is not None
        return run

    def _drop(self, key: str) -> None:
        if (run := self._run) is not None:
            run.peer.notify({"t": "drop", "k": key})

    def _take_notice(self, frame: Frame) -> None:
        if frame.get("t") == "log" and self._may_log():
            level = frame.get("level")
            name = f"hermes_plugins.{str(frame.get('name'))[:120]}"
            logging.getLogger(name).log(
                level if isinstance(level, int) and 0 < level <= logging.CRITICAL else logging.INFO,
                "%s", str(frame.get("text"))[: 4 * MAX_LINE], extra={"plugin": self._plan.key},
            )  # fmt: skip

    def _log_output(self, stream: IO[bytes], run: _Run) -> None:
        """Log what the process prints, within bounds."""
        with stream:
            while line := stream.readline(MAX_LINE):
                text = line.decode("utf-8", "replace").rstrip()
                run.lines.append(text)
                if text and self._may_log():
                    logger.info("plugin %s prints: %s", self._plan.key, text, extra={"plugin": self._plan.key})

    def _may_log(self) -> bool:
        """Count a line of the plugin; return False above `MAX_LINES` in `WINDOW_S`."""
        with self._lock:
            if time.monotonic() - self._window > WINDOW_S:
                self._window, self._lines = time.monotonic(), 0
            self._lines += 1
            count = self._lines
        if count == MAX_LINES + 1:
            logger.warning("plugin %s: more lines are left out for %g s", self._plan.key, WINDOW_S)
        return count <= MAX_LINES

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def fault(self) -> str:
        """How the process last ended by itself; empty if it never did."""
        return fault_text(self._restarts, self._last_end)

    @property
    def state(self) -> ProcessState:
        """The present state."""
        run = self._run
        process = None if run is None or run.ended.is_set() else run.process
        pid, memory = (0, 0) if process is None else (process.pid, process.memory_bytes())
        status = (
            "running" if self._ready.is_set() else "ended" if self._refusal or self._closing.is_set() else "restarting"
        )
        sandbox = self._plan.launcher.name
        return ProcessState(status, inner_pid(pid), memory, self._restarts, self._last_end, sandbox)

    def _write_record(self) -> None:
        run = self._run
        process = None if run is None or run.ended.is_set() else run.process
        values = {
            "pid": process.pid if process else 0, "start": process.started if process else 0,
            "restarts": self._restarts, "last_end": self._last_end or self._refusal,
            "sandbox": self._plan.launcher.name,
        }  # fmt: skip
        with self._recording, contextlib.suppress(OSError):
            if not self._closing.is_set():
                write_atomic(self._plan.record, json.dumps(values), mode=PRIVATE)
