"""Approval transports: another way to ask the user, such as a pager.

A plugin registers a transport and the operator selects it (`security.approval.transport`). It is given a redacted
request and returns a decision that names the request by id and digest. Every failure denies. A transport does not see
commands that are refused without a question. Source: plugin contract of 0.23 §9.1.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import field
from queue import Empty, SimpleQueue
from typing import Any, Literal

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.redaction import redactor

logger = logging.getLogger(__name__)

BUILTIN_TRANSPORT = "builtin"
DENY_FALLBACK = "deny"
SCHEMA_VERSION = 1
CHOICES = ("once", "session", "always", "deny")
MAX_WORKERS = 8
"""Transports that may run at the same time, the abandoned ones included."""
DEFAULT_TIMEOUT_S = 300.0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

TransportFailure = Literal["timeout", "error", "invalid", "stale", "busy", "interrupted", "unavailable"]


@lazy_dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """The answer of a transport to one request."""

    request_id: str
    request_digest: str
    choice: str


@lazy_dataclass(frozen=True, slots=True)
class TransportRequest:
    """An approval request as a transport gets it; texts are redacted."""

    request_id: str
    digest: str
    """SHA-256 of the request, session key included: a decision for another request has another one."""
    command: str
    description: str
    pattern_key: str
    pattern_keys: tuple[str, ...]
    surface: str
    timeout_seconds: float
    allowed_choices: tuple[str, ...]
    schema_version: int = field(default=SCHEMA_VERSION)

    @classmethod
    def create(
        cls,
        *,
        command: str,
        description: str,
        pattern_key: str,
        pattern_keys: Iterable[str],
        session_key: str,
        surface: str,
        allow_session: bool,
        allow_permanent: bool,
        timeout_seconds: float = DEFAULT_TIMEOUT_S,
    ) -> TransportRequest:
        """Return a request with a new id; its texts are redacted."""
        choices = ("once", *(["session"] if allow_session else []), *(["always"] if allow_permanent else []), "deny")
        values: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "request_id": secrets.token_hex(16),
            "command": redactor(command),
            "description": redactor(description),
            "pattern_key": pattern_key,
            "pattern_keys": tuple(pattern_keys),
            "surface": surface,
            "timeout_seconds": timeout_seconds,
            "allowed_choices": choices,
        }
        text = json.dumps({**values, "session_key": session_key}, sort_keys=True, separators=(",", ":"))
        return cls(digest=hashlib.sha256(text.encode()).hexdigest(), **values)

    def respond(self, choice: str) -> ApprovalDecision:
        """Return the decision for this request."""
        return ApprovalDecision(self.request_id, self.digest, choice)


class ApprovalTransportResult(LazyNamedTuple):
    """What a transport decided; a failure is always the choice `deny`."""

    choice: str
    failure: TransportFailure | None = None


class RegisteredApprovalTransport(LazyNamedTuple):
    """A transport of a plugin."""

    name: str
    present: Callable[[TransportRequest], Any]
    plugin_id: str
    profile_home: str


def make_transport(
    name: object, present: object, plugin: str, home: str, taken: Iterable[str]
) -> RegisteredApprovalTransport:
    """Return a transport.

    Args:
        taken: names of the registered transports.

    Raises:
        ValueError: the name is unusable, reserved or taken.
        TypeError: `present` is not callable.
    """
    key = name.strip().lower() if isinstance(name, str) else ""
    if _NAME.fullmatch(key) is None:
        raise ValueError(f"approval transport {name!r} is not usable: expected [a-z0-9][a-z0-9_-], at most 64")
    if key == BUILTIN_TRANSPORT or key in taken:
        owner = "the agent" if key == BUILTIN_TRANSPORT else "another plugin"
        raise ValueError(f"approval transport '{key}' belongs to {owner}: choose another name")
    if not callable(present):
        raise TypeError(f"the function of approval transport '{key}' is not callable: {present!r}")
    return RegisteredApprovalTransport(key, present, plugin, home)


_slots = threading.BoundedSemaphore(MAX_WORKERS)


def invoke_approval_transport(
    present: Callable[[TransportRequest], Any],
    request: TransportRequest,
    *,
    timeout_seconds: float,
    poll_interval: float = 1.0,
    on_poll: Callable[[], object] | None = None,
    is_interrupted: Callable[[], bool] | None = None,
) -> ApprovalTransportResult:
    """Ask a transport in a thread of its own and return the choice; every failure denies.

    Args:
        on_poll: called after each `poll_interval` seconds of waiting.
        is_interrupted: checked as often; True ends the wait.
    """
    if not _slots.acquire(blocking=False):
        return ApprovalTransportResult("deny", "busy")
    answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    threading.Thread(target=_present, args=(present, request, answers), name="approval-transport", daemon=True).start()
    end = time.monotonic() + max(timeout_seconds, 0.0)
    while True:
        left_s = end - time.monotonic()
        try:
            value, error = answers.get(timeout=max(min(poll_interval, left_s), 0.001))
            break
        except Empty:
            if is_interrupted is not None and is_interrupted():
                return ApprovalTransportResult("deny", "interrupted")
            if left_s <= 0:
                return ApprovalTransportResult("deny", "timeout")
            if on_poll is not None:
                on_poll()
    if error is not None:
        logger.warning("approval transport raised %s: %s", type(error).__name__, error, exc_info=error)
        return ApprovalTransportResult("deny", "error")
    return check_decision(value, request)


def check_decision(value: Any, request: TransportRequest) -> ApprovalTransportResult:
    """Return the choice of a decision, if it belongs to the request and was offered."""
    if not isinstance(value, ApprovalDecision):
        return ApprovalTransportResult("deny", "invalid")
    if (value.request_id, value.request_digest) != (request.request_id, request.digest):
        return ApprovalTransportResult("deny", "stale")
    if value.choice not in request.allowed_choices:
        return ApprovalTransportResult("deny", "invalid")
    return ApprovalTransportResult(value.choice)


def _present(
    present: Callable[[TransportRequest], Any],
    request: TransportRequest,
    answers: SimpleQueue[tuple[Any, BaseException | None]],
) -> None:
    try:
        value = present(request)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        answers.put((value, None))
    except BaseException as exc:  # noqa: BLE001 - plugin code; it becomes the failure `error`
        answers.put((None, exc))
    finally:
        _slots.release()


async def _awaited(value: Any) -> Any:
    return await value


class SelectedTransport:
    """The transport that the operator selected, and how requests reach it.

    Args:
        selected: returns `security.approval.transport` and `.transport_fallback` of the config.
        find: returns the registered transport of a name, or None.
    """

    def __init__(
        self,
        selected: Callable[[], tuple[str, str]],
        find: Callable[[str], RegisteredApprovalTransport | None],
    ) -> None:
        self._selected, self._find = selected, find

    @property
    def name(self) -> str:
        """Name of the selected transport; "" for the agent's own way of asking."""
        name = self._selected()[0].strip().lower()
        return "" if name == BUILTIN_TRANSPORT else name

    @property
    def falls_back(self) -> bool:
        """Whether a failure leaves the question to the agent's own way of asking."""
        return self._selected()[1] == BUILTIN_TRANSPORT

    def request(self, asked: ApprovalRequest, session_key: str, surface: str, timeout_s: float) -> TransportRequest:
        """Return the request that the transport gets."""
        return TransportRequest.create(
            command=asked.detail,
            description=asked.summary,
            pattern_key=asked.rule_key,
            pattern_keys=(asked.rule_key, *asked.also),
            session_key=session_key,
            surface=surface,
            allow_session=asked.is_lasting,
            allow_permanent=asked.is_always_offered,
            timeout_seconds=timeout_s,
        )

    def ask(self, request: TransportRequest, is_interrupted: Callable[[], bool]) -> ApprovalTransportResult:
        """Ask the selected transport and wait; never on the core loop."""
        transport = self._find(self.name)
        if transport is None:
            logger.warning("approval transport '%s' is selected, and no plugin registers it", self.name)
            return ApprovalTransportResult("deny", "unavailable")
        result = invoke_approval_transport(
            transport.present, request, timeout_seconds=request.timeout_seconds, is_interrupted=is_interrupted
        )
        if result.failure is not None:
            logger.warning(
                "approval transport '%s' of plugin %s failed: %s",
                *(transport.name, transport.plugin_id, result.failure),
                extra={"plugin": transport.plugin_id},
            )
        return result


def failure_text(failure: str) -> str:
    """Return the text for the model when the selected transport failed."""
    return (
        f"BLOCKED: Selected approval transport failed ({failure}); the user has NOT consented."
        " Do not try again; tell the user what you wanted to do."
    )
