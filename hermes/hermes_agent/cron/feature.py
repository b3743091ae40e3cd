"""The tool `cronjob`, and the scheduled jobs of this process. Source: plugin contract §4.12."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hermes_agent.adapters.events import get_session_env
from hermes_agent.contracts.tool import ApprovalRequest, Effect, Registrar
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.cron.job_store import JobStore
from hermes_agent.cron.jobs import Fault, Job, check_platforms, edit_job, resume_job
from hermes_agent.cron.schedule import Schedule
from hermes_agent.cron.scheduler import JobScheduler
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import Principals
from hermes_agent.tools import current_scope, tool_error, tool_result

ACTIONS = ("create", "list", "update", "pause", "resume", "remove", "run")
SCHEMA: dict[str, Any] = {
    "name": "cronjob",
    "description": "Schedule work for later: a prompt that you are given at its time in a session of its own.",
    "parameters": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(ACTIONS)},
            "job_id": {"type": "string", "description": "Id or name"},
            "schedule": {"type": "string", "description": "`every day at 9:00`, `0 9 * * 1-5`; once: `in 2h`"},
            "prompt": {"type": "string", "description": "Complete: nothing of this conversation is known then"},
            "name": {"type": "string"},
            "repeat": {"type": "integer"},
            "deliver": {"type": "string", "description": "origin (default), local, PLATFORM[:CHAT[:THREAD]]"},
            "skills": {"type": "array", "items": {"type": "string"}},
            "model": {"type": "string"},
            "script": {"type": "string", "description": "File in HOME/scripts that runs first"},
            "no_agent": {"type": "boolean", "description": "The script's output is the answer"},
            "context_from": {"type": "array", "items": {"type": "string"}, "description": "Jobs"},
            "enabled_toolsets": {"type": "array", "items": {"type": "string"}},
            "workdir": {"type": "string"},
            "attach_to_session": {"type": "boolean", "description": "Answers become part of this chat's conversation"},
        },
        "required": ["action"],
    },
}


@lazy_dataclass(slots=True, eq=False, repr=False)
class CronJobTool:
    """The handler of `cronjob`.

    Attributes:
        visible_to: returns the principals that a principal may see the jobs of (`Principals.visible_to`).
        on_change: called after a change, in a worker.
        find_problem: returns the problem of the platform of a target, or "".
    """

    home: Path
    visible_to: Callable[[str], frozenset[str]]
    on_change: Callable[[], None]
    find_problem: Fault = lambda target: ""

    def __call__(self, args: dict[str, Any], **kwargs: Any) -> str:
        """Return `success` with `job` or `jobs` in upstream's form, or `error`."""
        action = args.get("action")
        if action not in ACTIONS:
            return tool_error(f"`action` is {action!r}: expected one of {', '.join(ACTIONS)}")
        scope = current_scope.get()
        principal = "local" if scope is None else scope.principal
        if scope is not None and scope.platform == "cron" and action != "list":
            return tool_error("a scheduled job does not change the schedule")
        try:
            with self._store() as store:
                result = self._act(action, args, store, principal)
        except UserError as exc:
            return tool_error(f"{exc} {exc.hint or ''}".strip())
        if action != "list":
            self.on_change()
        return tool_result(success=True, **result)

    def _act(self, action: str, args: Mapping[str, Any], store: JobStore, principal: str) -> dict[str, Any]:
        principals = sorted(self.visible_to(principal))
        if action == "list":
            return {"jobs": [job.to_dict() for job in store.jobs(principals)]}
        now = time.time()
        others = {job.id: job for job in store.jobs(principals)}
        attach = _attach_key(args.get("attach_to_session"))
        if action == "create":
            if not args.get("schedule"):
                raise UserError("`schedule` is missing: when is it due?")
            origin = _origin()
            job = Job("", "", Schedule("once", ""), origin=origin, principal=principal, created=now)
            job = replace(job, deliver="origin" if origin else "local", attach=attach or "")
            return {"job": self._put(store, job, args, now, others).to_dict()}
        job = store.find(str(args.get("job_id") or ""), principals)
        if action == "update":
            job = replace(job, attach=job.attach if attach is None else attach)
            job = self._put(store, job, args, now, others)
        elif action == "pause":
            job = store.put(replace(job, enabled=False))
        elif action == "resume":
            job = store.put(resume_job(job, now))
        elif action == "remove":
            store.remove(job.id)
        else:
            store.request_run(job.id, now)
        return {"job": job.to_dict()}

    def _put(self, store: JobStore, job: Job, args: Mapping[str, Any], now: float, others: Mapping[str, Job]) -> Job:
        changed = edit_job(job, args, home=self.home, now=now, others=others)
        check_platforms(changed, args, self.find_problem)
        return store.put(changed)

    @contextlib.contextmanager
    def _store(self) -> Iterator[JobStore]:
        with contextlib.closing(JobStore(self.home / "state.db")) as store:
            yield store

    def approval(self, args: dict[str, Any]) -> ApprovalRequest | None:
        """Return an approval request for a scheduled program or message, since no user is present then."""
        if args.get("action") not in ("create", "update"):
            return None
        places = {part.strip() for part in str(args.get("deliver") or "").split(",")} - {"", "local", "origin"}
        what = [f"the script {args['script']}"] if args.get("script") else []
        what += [f"messages to {', '.join(sorted(places))}"] if places else []
        if not what:
            return None
        detail = f"{' and '.join(what)}, {args.get('schedule') or 'as planned'}: {str(args.get('prompt') or '')[:500]}"
        return ApprovalRequest(
            "cronjob",
            "schedule work without a user",
            detail,
            f"cronjob:{detail}",
            mandatory=bool(args.get("script")),
        )


def _attach_key(value: Any) -> str | None:
    """Return the key of the session that gets the answers, "" for none, or None without a value.

    Raises:
        UserError: this is no chat.
    """
    if value is None:
        return None
    key = get_session_env("HERMES_SESSION_KEY") if value is True else ""
    if value is True and not (key and _origin()):
        raise UserError("`attach_to_session` means the chat that creates the job, and this is no chat")
    return key


def _origin() -> str:
    parts = [get_session_env(f"HERMES_SESSION_{name}") for name in ("PLATFORM", "CHAT_ID", "THREAD_ID")]
    return ":".join(part for part in parts if part) if parts[0] and parts[1] else ""


class ScheduledJobs:
    """The scheduled jobs of this home.

    Args:
        call_later: calls a function on the core loop after some seconds (`Bridge.call_later`).
    """

    def __init__(self, home: Path, call_later: Callable[..., object]) -> None:
        self._home, self._call_later = home, call_later
        self.scheduler: JobScheduler | None = None
        """Starts due jobs; None in a process that runs none."""

    def open(self) -> JobStore:
        """Open the store; each caller has a connection of its own."""
        return JobStore(self._home / "state.db")

    def wake(self) -> None:
        """Have the scheduler read the jobs again; from any thread."""
        if self.scheduler is not None:
            self._call_later(0, self.scheduler.wake)


class CronDeps(LazyNamedTuple):
    """Services of scheduled jobs."""

    bridge: Bridge
    find_platform_problem: Fault
    home: Path
    people: Principals


class CronServices(LazyNamedTuple):
    """Services that this feature provides."""

    jobs: ScheduledJobs


def register(ctx: Registrar, deps: CronDeps) -> CronServices:
    """Register the tool `cronjob` and return the jobs."""
    jobs = ScheduledJobs(deps.home, deps.bridge.call_later)
    tool = CronJobTool(deps.home, deps.people.visible_to, jobs.wake, deps.find_platform_problem)
    ctx.register_tool(
        "cronjob",
        "cronjob",
        SCHEMA,
        tool,
        emoji="⏰",
        approval=tool.approval,
        effect=Effect("remembers"),
    )
    return CronServices(jobs)
