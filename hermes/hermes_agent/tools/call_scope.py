"""The scope of a tool call: session, turn, directory, step budget, approval.

And which calls run in parallel. Source: plugin contract §4.1, §4.11.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import Any

from hermes_agent.config.home import FileAccess
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.registry import BUILTIN
from hermes_agent.policy import Approvals
from hermes_agent.sessions import Principals
from hermes_agent.tools.registry import ToolRegistry


class StepBudget:
    """The steps that a turn may still make, tool calls by plugins included. Safe for threads."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Spend one step; return False if none is left."""
        with self._lock:
            self._left -= 1
            return self._left >= 0


class ReachedHost(LazyNamedTuple):
    """A host that a command reached."""

    at: float
    host: str
    asked: bool
    """Whether the user approved it."""


@lazy_dataclass(slots=True, eq=False)  # not frozen: each call of a plugin would pay for it
class CallScope:
    """For which session and turn tool calls run, and where; replaced, never changed."""

    session_id: str
    task_id: str
    turn_id: str
    cwd: Path
    """Working directory of relative paths and commands: absolute, resolved when the session was opened."""
    approvals: Approvals
    user_task: str = ""
    """The user's message of this turn."""
    platform: str = "cli"
    api_request_id: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when the turn is interrupted; long-running tools poll it."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Additional keywords for the handler (`dispatch_tool(**kwargs)`)."""
    shown: frozenset[str] | None = None
    """The tools that the model gets; None without a model."""
    budget: StepBudget | None = None
    """The remaining steps of the running turn; None outside a turn."""
    principal: str = "local"
    """Identity to which the session belongs (`sessions.principals`)."""
    reached: list[ReachedHost] = field(default_factory=list)
    """The hosts that commands of these calls reached; the only attribute that grows."""
    tool_socket: str = ""
    """Path of the socket through which a command of these calls requests tools; the sandbox exposes it. Empty: none."""
    on_output: Callable[[bytes], None] | None = None
    """Called from a worker with output of a command as it comes; None where no front end shows it."""
    account: str = ""
    """The session that model requests are accounted to; empty: this one."""

    def handler_keywords(self) -> dict[str, Any]:
        """Return the keywords of a handler besides the arguments (plugin contract §4.1)."""
        return {
            "task_id": self.task_id,
            "session_id": self.session_id,
            "user_task": self.user_task,
            **self.extra,
        }


current_scope: ContextVar[CallScope | None] = ContextVar("hermes_call_scope", default=None)
"""The scope of the tool call that runs in this context, or None."""

current_call_id: ContextVar[str] = ContextVar("hermes_tool_call_id", default="")
"""Id of the tool call with a handler in this context, or ""."""


@contextlib.contextmanager
def use_scope(scope: CallScope | None) -> Iterator[None]:
    """Let code in the block, and what it starts, call tools within a scope, or outside of all."""
    token = current_scope.set(scope)
    try:
        yield
    finally:
        current_scope.reset(token)


def file_access(principals: Principals) -> FileAccess:
    """Return the files of the home that the running call may open; outside of calls, none of a principal."""
    scope = current_scope.get()
    return FileAccess() if scope is None else principals.reader(scope.principal, scope.session_id)


CLEARANCE_S = 60.0
"""Seconds for which an approval holds if the call is delayed."""


class ClearedCall(LazyNamedTuple):
    """What an approval is bound to."""

    digest: str
    taint: int
    """Number of untrusted texts in the session; another one makes the approval void."""


class Clearance:
    """The approval of one call.

    Args:
        call: the fingerprint of the approved call.
        clock: monotonic seconds.
    """

    __slots__ = ("_call", "_clock", "_until", "_unused")

    def __init__(self, call: ClearedCall, clock: Callable[[], float] = time.monotonic) -> None:
        self._call, self._clock = call, clock
        self._until = clock() + CLEARANCE_S
        self._unused = [True]

    def take(self, call: ClearedCall) -> bool:
        """Use the approval for a call; return False if it is for another call, expired or used.

        Safe for threads.
        """
        newly_tainted = call.taint > self._call.taint
        if call.digest != self._call.digest or newly_tainted or self._clock() > self._until:
            return False
        try:
            return self._unused.pop()
        except IndexError:  # by another run of the same call
            return False


def fingerprint(tool: str, args: dict[str, Any], cwd: Path, *, taint: int) -> ClearedCall:
    """Return what identifies a call: the hash of tool, arguments and directory, and its taint."""
    text = "\0".join((tool, str(cwd), freeze_arguments(args)))
    return ClearedCall(hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest(), taint)


def freeze_arguments(args: dict[str, Any]) -> str:
    """Return the arguments as a text that changes with them."""
    try:
        return repr(sorted(args.items()))
    except TypeError:  # keys of several types, which only a plugin passes
        return repr(args)


current_clearance: ContextVar[Clearance | None] = ContextVar("hermes_cleared", default=None)
"""The approval of the call that runs in this context; a `registry.dispatch` outside of the pipeline asks again."""


logger = logging.getLogger(__name__)

MAX_PARALLEL = 8
BATCH_LIMIT_S = 420.0
LIMIT_VARIABLE = "HERMES_CONCURRENT_TOOL_TIMEOUT_S"

READERS = frozenset(
    {
        *("ha_get_state", "ha_list_entities", "ha_list_services", "read_file", "search_files", "session_search"),
        *("skill_view", "skills_list", "vision_analyze", "web_extract", "web_search"),
    }
)
"""Built-in tools that change nothing."""
WRITERS = frozenset({"write_file", "patch"})
"""Built-in tools that change only the file in `path`."""


def may_run_in_parallel(registry: ToolRegistry, calls: Sequence[tuple[str, dict[str, Any] | None]], cwd: Path) -> bool:
    """Return whether these calls, each a tool and its arguments, may run in parallel."""
    if len(calls) < 2:
        return False
    changed: set[str] = set()
    for name, arguments in calls:
        file = _changed_file(registry, name, arguments or {})
        if file is None:
            return False
        if file:
            place = os.path.realpath(cwd / Path(file).expanduser())
            if place in changed:
                return False
            changed.add(place)
    return True


def may_repeat(registry: ToolRegistry, name: str) -> bool:
    """Return whether a call with an unknown outcome may be repeated."""
    entry = registry.get(name)
    own = registry.owner(name) == BUILTIN and name in READERS
    return entry is not None and (own or entry.idempotent)


def batch_limit_s() -> float:
    """Return the time limit of parallel calls together, in seconds."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        return max(1.0, float(text)) if text else BATCH_LIMIT_S
    except ValueError:
        logger.warning("%s: no number of seconds, %g is used: %r", LIMIT_VARIABLE, BATCH_LIMIT_S, text)
        return BATCH_LIMIT_S


def _changed_file(registry: ToolRegistry, name: str, arguments: dict[str, Any]) -> str | None:
    """Return the file that a call changes, "" if it changes none, or None if it must run alone."""
    entry = registry.get(name)
    if entry is None:
        return None
    if registry.owner(name) == BUILTIN and name in READERS:
        return ""
    if registry.owner(name) == BUILTIN and name in WRITERS:
        return str(arguments.get("path") or "") or None
    safe = entry.parallel_safe
    if not callable(safe):
        return "" if safe else None
    try:
        return str(safe(arguments)) or None
    except Exception as exc:  # noqa: BLE001 - a plugin's function; running alone is always right
        logger.warning("tool %s: `parallel_safe` failed, it runs alone: %r", name, exc)
        return None
