"""Runs of scheduled jobs: a session for each run, and the delivery of its answer."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hermes_agent.agent import Agent
from hermes_agent.config import Config
from hermes_agent.config.home import profile_name
from hermes_agent.contracts.cron_scheduler import CRON_SCHEDULER
from hermes_agent.contracts.kind import ProviderLookup
from hermes_agent.contracts.tool import ApprovalRequest, Registrar
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import fold
from hermes_agent.core.untrusted import mark_untrusted
from hermes_agent.cron import JobOutcome, JobRun, JobScheduler, JobStore
from hermes_agent.cron.current_run import cron_execution
from hermes_agent.cron.feature import ScheduledJobs
from hermes_agent.cron.job_store import with_published_jobs
from hermes_agent.cron.jobs import SILENT, Job, script_path, targets_of
from hermes_agent.policy import Choice, NoApprover, Refusal
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.skills.skill_commands import SkillCommands

logger = logging.getLogger(__name__)

SCRIPT_TIMEOUT_S = 600.0
SCRIPT_OUTPUT_BYTES = 200_000

SendText = Callable[[str, str, str, str], Awaitable[object]]
"""Send a text to `PLATFORM[:CHAT[:THREAD]]` for a principal; the same id twice is one message."""


Attach = Callable[[str, str, str], Awaitable[object]]
"""Add a text to the conversation of a chat: session key, name of the job, text."""


class _AllowingApprover:
    """Approver of jobs that allows all requests (`approvals.cron_mode: approve`)."""

    asks_user = False

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Allow the request, unless the user must decide it each time."""
        if request.mandatory:
            return await NoApprover("in a scheduled job").ask(request)
        return "once"


class JobRunner:
    """Runs scheduled jobs for the scheduler.

    Args:
        send: sends an answer; None: answers are only stored.
        environment: returns the environment of a script.
        approve: whether all requests are allowed.
        wrap: whether an answer names its job.
        attach: adds an answer to a conversation; None: conversations stay unchanged.
    """

    def __init__(
        self,
        agent: Agent,
        skills: SkillCommands,
        home: Path,
        *,
        send: SendText | None,
        environment: Callable[[], dict[str, str]],
        approve: bool = False,
        wrap: bool = True,
        attach: Attach | None = None,
    ) -> None:
        self._agent = agent
        self._skills = skills
        self._home = home
        self._send = send
        self._environment = environment
        self._approve = approve
        self._wrap = wrap
        self._attach = attach
        self.scheduler: JobScheduler | None = None
        """Provides the last output of other jobs; set by the host."""

    async def run(self, run: JobRun) -> JobOutcome:
        """Run a job.

        Raises:
            UserError: a script or skill is missing, or no model is available.
        """
        job = run.job
        printed = ""
        if job.script:
            stopped = threading.Event()
            try:
                printed = await self._agent.bridge.run(self._script, run, stopped)
            finally:
                stopped.set()
            if job.no_agent:
                return JobOutcome("ok", printed) if printed.strip() else JobOutcome("silent")
        conversation = await self._agent.open(
            platform="cron",
            approver=_AllowingApprover() if self._approve else NoApprover("in a scheduled job"),
            principal=job.principal,
            model=job.model or None,
            cwd=_directory(job),
            toolsets=job.toolsets,
        )
        text = ""
        reason = "cron_complete"
        try:
            with cron_execution(run, profile_name(self._home)):
                end = await fold(conversation.turn(await self._prompt(run, printed, conversation.session_id)))
            assert end is not None
            text, reason = end.text, end.reason if end.reason == "interrupted" else reason
        finally:
            await conversation.close(reason)
        if reason == "interrupted":
            return JobOutcome("interrupted", text or "the run was interrupted", conversation.session_id)
        return JobOutcome(
            "silent" if not text.strip() or text.strip() == SILENT else "ok", text, conversation.session_id
        )

    async def deliver(self, run: JobRun, outcome: JobOutcome) -> None:
        """Send the answer, or the reason of a failure, to the targets of the job."""
        if outcome.status == "silent" or self._send is None:
            return
        text = outcome.text
        if outcome.status != "ok":
            text = f"⚠️ The job failed ({outcome.status}): {text}"
        if self._wrap:
            text = f"⏰ {run.job.name}\n\n{text}"
        for target in targets_of(run.job):
            try:
                await self._send(target, text, f"cron-{run.job.id}-{run.id}-{target}", run.job.principal)
            except UserError as exc:  # other targets may work
                logger.error("job %s (%s): output not sent to %s: %s", run.job.name, run.job.id, target, exc)
        if self._attach is not None and run.job.attach and outcome.status == "ok":
            await self._attach(run.job.attach, run.job.name, outcome.text)

    async def _prompt(self, run: JobRun, printed: str, session_id: str) -> str:
        job = run.job
        late = f" It comes {run.late_s / 60:.0f} minutes late: the agent was not running." if run.late_s > 60 else ""
        parts = [
            f'[This is the scheduled job "{job.name}". Nobody is there to answer questions. Your last message is the'
            f" result that is delivered; if there is nothing to tell, answer {SILENT} alone.{late}]"
        ]
        for name in job.skills:
            message = await self._agent.bridge.run(
                lambda name=name: self._skills.message(name, "", session_id=session_id, platform="cron")
            )
            if message is None:
                raise UserError(f"the job needs the skill {name!r}, which does not exist")
            parts.append(message)
        if printed:
            parts.append("What its script printed:\n" + mark_untrusted(printed, job.script))
        for other in job.context_from:
            assert self.scheduler is not None
            if output := await self.scheduler.call(JobStore.last_output, other):
                parts.append(f"What job {other} said last:\n" + mark_untrusted(output, f"job {other}"))
        return "\n\n".join(part for part in (*parts, job.prompt) if part)

    def _script(self, run: JobRun, stopped: threading.Event) -> str:
        from hermes_agent.system import processes  # an idle daemon runs no program

        path = script_path(self._home, run.job.script)
        command: list[str] = [str(path)]
        if path.suffix == ".py":
            command.insert(0, "python3")
        elif path.suffix in (".sh", ".bash") or not path.stat().st_mode & 0o100:
            command.insert(0, "bash")
        done = processes.run(
            command,
            cwd=_directory(run.job) or path.parent,
            env=self._environment(),
            timeout_s=SCRIPT_TIMEOUT_S,
            output_limit_bytes=SCRIPT_OUTPUT_BYTES,
            cancelled=stopped,
        )
        text = (done.head + done.tail).decode("utf-8", errors="replace")
        if done.exit_code != 0:
            raise UserError(f"the script {path.name} ended with status {done.exit_code}: {text[-2_000:]}")
        return text


def _directory(job: Job) -> Path | None:
    """Return the working directory of a job, or None.

    Raises:
        UserError: its path now leads to another directory; a link must not select where commands write.
    """
    if not job.workdir:
        return None
    if (now := Path(job.workdir).resolve()) != Path(job.workdir):
        hint = f"`hermes cron edit {job.id} --workdir {now}` allows it."
        raise UserError(f"the working directory {job.workdir} of job {job.name!r} now leads to {now}", hint=hint)
    return now


class SchedulerDeps(LazyNamedTuple):
    """Services of the scheduler."""

    agent: Agent
    bridge: Bridge
    config: Config
    home: Path
    jobs: ScheduledJobs
    providers: ProviderLookup
    skill_commands: SkillCommands
    values: Callable[[], dict[str, Any]]


class SchedulerFactory:
    """Makes the scheduler; `ScheduledJobs.scheduler` is the last one made."""

    def __init__(self, deps: SchedulerDeps) -> None:
        self._deps = deps

    def make(self, send: SendText | None = None, attach: Attach | None = None) -> JobScheduler:
        """Return a scheduler; the caller starts and drains it.

        Args:
            send: sends a text to a chat; None keeps answers in the store only.
            attach: adds a text to the conversation of a chat.
        """
        deps = self._deps
        settings = deps.config.settings
        runner = JobRunner(
            deps.agent,
            deps.skill_commands,
            deps.home,
            send=send,
            environment=_environment,
            approve=settings.approvals.cron_mode == "approve",
            wrap=settings.cron.wrap_response,
            attach=attach,
        )
        scheduler = JobScheduler(
            lambda: with_published_jobs(deps.jobs.open(), deps.home),
            deps.bridge.serial_executor("cron"),
            work=runner.run,
            deliver=runner.deliver,
            keep=settings.cron.output_retention,
            scheduler=lambda: deps.providers.choose(CRON_SCHEDULER.name, deps.values()).provider,
            spawn=deps.bridge.spawn,
        )
        deps.jobs.scheduler = runner.scheduler = scheduler
        return scheduler


class SchedulerServices(LazyNamedTuple):
    """Services that this feature provides."""

    scheduler_factory: SchedulerFactory


def register(ctx: Registrar, deps: SchedulerDeps) -> SchedulerServices:
    """Return the factory of the scheduler; nothing is registered."""
    return SchedulerServices(SchedulerFactory(deps))


def _environment() -> dict[str, str]:
    from hermes_agent.system.processes import tool_environment  # an idle daemon runs no program

    return tool_environment(os.environ)
