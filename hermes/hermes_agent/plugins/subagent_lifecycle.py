"""Subagents that plugins start and watch: `ctx.subagent_lifecycle`.

A plugin starts a subagent during a turn; it works on after the turn, for the session of the turn. Handles are signed
with a key of this process: a changed handle, or one of another process, reads as UNKNOWN. Results are kept for an hour.
Source: plugin contract of 0.23 §6.6.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar

from hermes_agent.agent.conversation import Conversation
from hermes_agent.builtin_tools.delegate_task import DelegatedTask, SubagentReport
from hermes_agent.core.errors import HermesError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import new_id
from hermes_agent.plugins.capabilities import LLM_MODEL_OVERRIDE, has_capability
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.tools import current_scope

logger = logging.getLogger(__name__)

CONTRACT_VERSION = 1
MAX_GOAL, MAX_CONTEXT, MAX_NAME, MAX_METADATA, MAX_SUMMARY = 16_000, 32_000, 64, 8 * 1024, 32_000
KEPT_S = 3600.0
ROLES = ("leaf", "orchestrator")
NO_PARENT = "No active Hermes parent session is available."
_secret = secrets.token_bytes(32)


class SubagentLifecycleError(ValueError):
    """A request that cannot be carried out; the text says why."""


class SubagentState(StrEnum):
    """The state of a subagent."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"

    @property
    def is_terminal(self) -> bool:
        """Whether the subagent has ended."""
        return self in (self.SUCCEEDED, self.FAILED, self.INTERRUPTED, self.CANCELLED)


@lazy_dataclass(frozen=True)
class SubagentLaunchRequest:
    """What a subagent is to do."""

    goal: str
    context: str | None = None
    role: str = "leaf"
    model: str | None = None
    provider: str | None = None
    allowed_toolsets: tuple[str, ...] | list[str] | None = None
    """Toolsets of the parent that it may use; None allows all of them."""
    correlation_id: str | None = None
    parent_session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    blocked_tools: Any = None
    working_directory: Any = None
    timeout_seconds: Any = None


@lazy_dataclass(frozen=True)
class SubagentHandle:
    """The name of a subagent, as JSON values."""

    contract_version: int
    subagent_id: str
    parent_session_id: str
    correlation_id: str | None
    created_at: float
    provider: str | None
    model: str | None
    role: str
    depth: int
    capability: str
    """Signature of the other fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SubagentHandle:
        """Return the handle with these fields.

        Raises:
            SubagentLifecycleError: a field is missing.
        """
        try:
            return cls(**{each.name: values[each.name] for each in fields(cls)})
        except (KeyError, TypeError) as exc:
            raise SubagentLifecycleError(f"this is no handle of a subagent: {exc}") from None


@lazy_dataclass(frozen=True)
class SubagentStatus:
    """The state of a subagent at a time."""

    handle: SubagentHandle
    state: SubagentState
    updated_at: float


@lazy_dataclass(frozen=True)
class SubagentTerminalState:
    """The outcome of a wait."""

    handle: SubagentHandle
    state: SubagentState
    timed_out: bool = False


@lazy_dataclass(frozen=True)
class SubagentCancelResult:
    """The outcome of a cancellation."""

    handle: SubagentHandle
    accepted: bool
    state: SubagentState
    reason: str = ""


@lazy_dataclass(frozen=True)
class SubagentReconnectResult:
    """Whether this process knows a subagent."""

    handle: SubagentHandle
    connected: bool
    state: SubagentState


@lazy_dataclass(frozen=True)
class SubagentResult:
    """What a subagent did."""

    handle: SubagentHandle
    ready: bool
    summary: str = ""
    structured_payload: dict[str, Any] | None = None
    terminal_state: SubagentState | None = None
    started_at: float | None = None
    completed_at: float | None = None
    error_classification: str | None = None
    error_message: str | None = None
    usage_metadata: dict[str, Any] = field(default_factory=dict)
    tool_execution_summary: dict[str, Any] = field(default_factory=dict)
    result_hash: str = ""


class _Run:
    """One subagent of this process."""

    def __init__(self, handle: SubagentHandle) -> None:
        self.handle = handle
        self.state = SubagentState.PENDING
        self.updated_at = self.began_at = time.time()
        self.ended_at = 0.0
        self.child: Conversation | None = None
        self.ended: Future[SubagentReport] = Future()

    def enter(self, state: SubagentState) -> None:
        self.state, self.updated_at = state, time.time()


class SubagentLifecycle:
    """Starts and watches subagents of one plugin."""

    _runs: ClassVar[dict[str, _Run]] = {}
    """The subagents of this process, by id; a handle of any plugin with its signature reaches them."""
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, services: HostServices, manifest: PluginManifest) -> None:
        self._services, self._manifest = services, manifest

    def launch(self, request: SubagentLaunchRequest | Mapping[str, Any]) -> SubagentHandle:
        """Start a subagent for the session of the running turn and return its handle.

        Raises:
            SubagentLifecycleError: the request is malformed, no turn runs, or subagents may not nest so deep.
        """
        wanted = _request(request)
        scope = current_scope.get()
        if scope is None or not scope.session_id or not scope.turn_id:
            raise SubagentLifecycleError(NO_PARENT)
        if wanted.parent_session_id not in (None, scope.session_id):
            raise SubagentLifecycleError(f"parent_session_id is not the active session {scope.session_id!r}")
        self._check_model(wanted)
        handle = _signed(
            SubagentHandle(
                CONTRACT_VERSION,
                new_id("subagent"),
                scope.session_id,
                wanted.correlation_id,
                time.time(),
                wanted.provider,
                wanted.model,
                wanted.role,
                1,
                "",
            )
        )
        run = _Run(handle)
        with self._lock:
            self._forget_old()
            if wanted.correlation_id and any(
                r.handle.correlation_id == wanted.correlation_id and r.handle.parent_session_id == scope.session_id
                for r in self._runs.values()
            ):
                raise SubagentLifecycleError(f"correlation_id {wanted.correlation_id!r} is used in this session")
            self._runs[handle.subagent_id] = run
        run.enter(SubagentState.STARTING)
        try:
            self._services.bridge.wait_core(self._begin(run, wanted, scope.session_id))
        except HermesError as exc:
            with self._lock:
                self._runs.pop(handle.subagent_id, None)
            raise SubagentLifecycleError(str(exc)) from exc
        logger.info("plugin %s: subagent %s starts", self._manifest.key, handle.subagent_id)
        return handle

    def status(self, handle: SubagentHandle | Mapping[str, Any]) -> SubagentStatus:
        """Return the state of a subagent; UNKNOWN for a changed handle or a forgotten subagent."""
        own, run = self._find(handle)
        if run is None:
            return SubagentStatus(own, SubagentState.UNKNOWN, time.time())
        return SubagentStatus(own, run.state, run.updated_at)

    def wait(
        self, handle: SubagentHandle | Mapping[str, Any], *, timeout_seconds: float | None = None
    ) -> SubagentTerminalState:
        """Wait until a subagent has ended, and return its state; never on the core loop."""
        own, run = self._find(handle)
        if run is None:
            return SubagentTerminalState(own, SubagentState.UNKNOWN)
        try:
            run.ended.result(timeout_seconds)
        except (FutureTimeout, TimeoutError):
            return SubagentTerminalState(own, run.state, timed_out=not run.state.is_terminal)
        except Exception as exc:  # noqa: BLE001 - the failure is the state
            logger.debug("subagent %s failed: %r", own.subagent_id, exc)
        return SubagentTerminalState(own, run.state)

    def cancel(self, handle: SubagentHandle | Mapping[str, Any], *, reason: str) -> SubagentCancelResult:
        """Interrupt a subagent."""
        own, run = self._find(handle)
        if run is None or run.state.is_terminal:
            return SubagentCancelResult(own, False, SubagentState.UNKNOWN if run is None else run.state, reason)
        run.enter(SubagentState.CANCEL_REQUESTED)
        logger.info("plugin %s: subagent %s is cancelled: %s", self._manifest.key, own.subagent_id, reason)
        child = run.child
        if child is not None:
            self._services.bridge.call_later(0, child.interrupt)
        return SubagentCancelResult(own, True, run.state, reason)

    def steer(self, handle: SubagentHandle | Mapping[str, Any], text: str) -> bool:
        """Give a running subagent another message; return False if it does not run."""
        _, run = self._find(handle)
        if run is None or run.child is None or run.state is not SubagentState.RUNNING or not text.strip():
            return False
        return self._services.injected.push(text, run.child.session_id) == "taken"

    def result(self, handle: SubagentHandle | Mapping[str, Any]) -> SubagentResult:
        """Return what a subagent did; `ready` is False until it has ended."""
        own, run = self._find(handle)
        if run is None or not run.ended.done():
            return SubagentResult(own, False)
        error = run.ended.exception()
        if error is not None:
            return SubagentResult(
                own,
                True,
                terminal_state=run.state,
                started_at=run.began_at,
                completed_at=run.ended_at,
                error_classification=type(error).__name__,
                error_message=str(error)[:MAX_SUMMARY],
            )
        report = run.ended.result()
        summary = report.summary[:MAX_SUMMARY]
        failed = run.state is not SubagentState.SUCCEEDED
        return SubagentResult(
            own,
            True,
            summary,
            terminal_state=run.state,
            started_at=run.began_at,
            completed_at=run.ended_at,
            error_classification=run.state.value.lower() if failed else None,
            error_message=summary if failed else None,
            usage_metadata={"total_tokens": report.tokens, "api_calls": report.model_calls},
            tool_execution_summary={"session_id": report.session_id, "seconds": round(report.seconds, 3)},
            result_hash=hashlib.sha256(summary.encode()).hexdigest(),
        )

    def reconnect(self, handle: SubagentHandle | Mapping[str, Any]) -> SubagentReconnectResult:
        """Return whether this process knows a subagent; none survives the process."""
        own, run = self._find(handle)
        return SubagentReconnectResult(own, run is not None, SubagentState.UNKNOWN if run is None else run.state)

    async def _begin(self, run: _Run, wanted: SubagentLaunchRequest, session_id: str) -> None:
        """Start the subagent on the core loop; return when it was accepted."""
        task = DelegatedTask(wanted.goal, wanted.context or "", wanted.role, tuple(wanted.allowed_toolsets or ()))
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def opened(child: Conversation) -> None:
            run.child = child
            if run.state is SubagentState.CANCEL_REQUESTED:
                child.is_cancelled_early = lambda: True
            else:
                run.enter(SubagentState.RUNNING)
            if not accepted.done():
                accepted.set_result(None)

        async def work() -> None:
            try:
                report = await self._services.subagents.run_watched(task, session_id, wanted.model, opened)
            except BaseException as exc:
                self._end(run, SubagentState.FAILED)
                run.ended.set_exception(exc if isinstance(exc, Exception) else RuntimeError(repr(exc)))
                if not accepted.done():
                    accepted.set_exception(exc)
                elif not isinstance(exc, Exception):
                    raise
                return
            ends = {"completed": SubagentState.SUCCEEDED, "interrupted": SubagentState.INTERRUPTED}
            state = ends.get(report.status, SubagentState.FAILED)
            if run.state is SubagentState.CANCEL_REQUESTED and state is SubagentState.INTERRUPTED:
                state = SubagentState.CANCELLED
            self._end(run, state)
            run.ended.set_result(report)

        self._services.subagents.keep(asyncio.ensure_future(work()))
        await accepted

    @staticmethod
    def _end(run: _Run, state: SubagentState) -> None:
        run.enter(state)
        run.child, run.ended_at = None, time.time()

    def _check_model(self, wanted: SubagentLaunchRequest) -> None:
        if wanted.provider is not None:
            raise SubagentLifecycleError("provider cannot be chosen: `model` takes the name of a model of any provider")
        values = self._services.config.values
        if wanted.model and not has_capability(values, self._manifest, LLM_MODEL_OVERRIDE, "subagent_lifecycle"):
            key = self._manifest.key
            raise SubagentLifecycleError(
                f"model needs the capability {LLM_MODEL_OVERRIDE}: add it to plugins.entries.{key}.granted_capabilities"
            )

    def _find(self, handle: SubagentHandle | Mapping[str, Any]) -> tuple[SubagentHandle, _Run | None]:
        own = handle if isinstance(handle, SubagentHandle) else SubagentHandle.from_dict(handle)
        if not isinstance(own.capability, str) or not hmac.compare_digest(_signature(own), own.capability):
            return own, None
        with self._lock:
            self._forget_old()
            return own, self._runs.get(own.subagent_id)

    def _forget_old(self) -> None:
        limit = time.time() - KEPT_S
        for name, run in list(self._runs.items()):
            if run.ended_at and run.ended_at < limit:
                del self._runs[name]


def _signature(handle: SubagentHandle) -> str:
    text = json.dumps({**handle.to_dict(), "capability": ""}, sort_keys=True)
    return hmac.new(_secret, text.encode(), hashlib.sha256).hexdigest()


def _signed(handle: SubagentHandle) -> SubagentHandle:
    return replace(handle, capability=_signature(handle))


def _request(given: SubagentLaunchRequest | Mapping[str, Any]) -> SubagentLaunchRequest:
    """Return a checked request.

    Raises:
        SubagentLifecycleError: a field is malformed.
    """
    if not isinstance(given, SubagentLaunchRequest):
        if not isinstance(given, Mapping):
            raise SubagentLifecycleError(f"the request is {type(given).__name__}: expected a mapping")
        known = {each.name for each in fields(SubagentLaunchRequest)}
        if unknown := sorted(set(given) - known):
            raise SubagentLifecycleError(f"the request has unknown fields: {', '.join(map(str, unknown))}")
        try:
            given = SubagentLaunchRequest(**given)
        except TypeError:
            raise SubagentLifecycleError("the request has no goal") from None
    for name, limit, required in (
        ("goal", MAX_GOAL, True),
        ("context", MAX_CONTEXT, False),
        ("model", MAX_NAME * 4, False),
        ("provider", MAX_NAME, False),
        ("correlation_id", MAX_NAME * 4, False),
    ):
        value = getattr(given, name)
        if value is None and not required:
            continue
        if not isinstance(value, str) or not value.strip() or len(value) > limit:
            raise SubagentLifecycleError(f"{name} is not usable: expected text of at most {limit:,} characters")
    _check_rest(given)
    return given


def _check_rest(given: SubagentLaunchRequest) -> None:
    if given.role not in ROLES:
        raise SubagentLifecycleError(f"role is {given.role!r}: expected {' or '.join(ROLES)}")
    for name in ("blocked_tools", "working_directory", "timeout_seconds"):
        if getattr(given, name) is not None:
            raise SubagentLifecycleError(f"{name} cannot be set")
    toolsets = given.allowed_toolsets
    if toolsets is not None and not (isinstance(toolsets, (list, tuple)) and all(isinstance(t, str) for t in toolsets)):
        raise SubagentLifecycleError("allowed_toolsets is not usable: expected a list of names")
    try:
        size = len(json.dumps(dict(given.metadata)).encode())
    except (TypeError, ValueError):
        raise SubagentLifecycleError("metadata is not usable: expected a mapping of JSON values") from None
    if size > MAX_METADATA:
        raise SubagentLifecycleError(f"metadata has {size:,} bytes: at most {MAX_METADATA:,}")
