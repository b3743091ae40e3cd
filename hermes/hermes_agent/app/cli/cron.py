"""`hermes cron`: work at its time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, ensure_home, print_json
from hermes_agent.config import hermes_home
from hermes_agent.core.errors import EXIT_OK

if TYPE_CHECKING:
    from hermes_agent.cron import Job, JobStore

__all__ = ["add_cron"]

cron_command = CliSubcommand("cron", "work at its time: list, add and change scheduled jobs")
add_cron = cron_command.add

JOB_ARGUMENT = argument("job", metavar="JOB", help="id, its beginning, or name")
JOB_OPTIONS = (
    argument("--name", metavar="TEXT"),
    argument("--deliver", metavar="WHERE", help="local, or PLATFORM[:CHAT[:THREAD]], several with commas"),
    argument("--repeat", type=int, metavar="N", help="how often; 0 for ever"),
    argument("--skill", dest="skills", action="append", metavar="NAME", help="a skill to keep to; repeatable"),
    argument("--toolset", dest="enabled_toolsets", action="append", metavar="NAME", help="repeatable"),
    argument("--model", metavar="NAME"),
    argument("--script", metavar="FILE", help="a file in HOME/scripts that runs first"),
    argument(
        "--no-agent", action="store_true", default=None, help="what the script prints is the answer, no model is asked"
    ),
    argument("--context-from", action="append", metavar="JOB", help="tell what this job said last; repeatable"),
    argument("--workdir", metavar="DIR"),
)


@contextlib.contextmanager
def _job_store() -> Iterator[JobStore]:
    from hermes_agent.cron import JobStore

    with contextlib.closing(JobStore(ensure_home() / "state.db")) as store:
        yield store


def _job_fields(args: Args, store: JobStore) -> dict[str, Any]:
    said = {k: v for k, v in vars(args).items() if k not in ("run", "job")}
    if said["context_from"]:
        said["context_from"] = [store.find(name).id for name in said["context_from"]]
    return said


def _save_job(job: Job, args: Args, store: JobStore) -> Job:
    from hermes_agent.cron.editing import check_platforms, edit_job
    from hermes_agent.cron.jobs import targets_of

    others, said = {other.id: other for other in store.jobs()}, _job_fields(args, store)
    made = edit_job(job, said, home=hermes_home(), now=time.time(), others=others)
    if args.deliver is not None and targets_of(made):
        with _target_problems() as faults:
            check_platforms(made, said, faults)
    return store.put(made)


@contextlib.contextmanager
def _target_problems() -> Iterator[Callable[[str], str]]:
    """Give what says why a target cannot be; plugins are loaded for it, since they bring platforms."""
    from hermes_agent.app.cli.command import loaded_host
    from hermes_agent.plugins.config_names import find_missing_platform

    with loaded_host() as host:

        def fault(target: str) -> str:
            found = find_missing_platform(host, target)
            if found is not None and found[0] != "error":
                print(f"deliver `{target}`: {found[1]}", file=sys.stderr)
            return found[1] if found is not None and found[0] == "error" else ""

        yield fault


@cron_command.action(
    "add",
    "add a job",
    argument("schedule", metavar="WHEN", help="`every day at 9:00`, `0 9 * * 1-5`, `in 2h`, …"),
    argument("prompt", metavar="PROMPT", nargs="?", default="", help="what to do"),
    *JOB_OPTIONS,
    description="The daemon (`hermes gateway run`) runs it.",
)
def _add_job(args: Args) -> None:
    from hermes_agent.cron import Job, Schedule

    with _job_store() as store:
        job = _save_job(Job("", "", Schedule("once", ""), created=time.time()), args, store)
    print(f"{job.id}  {job.name}: next {_format_job_time(job.next_run)}")
    _warn_without_daemon()


@cron_command.action(
    "edit",
    "change a job; what is not named stays",
    JOB_ARGUMENT,
    argument("--schedule", metavar="WHEN"),
    argument("--prompt", metavar="TEXT"),
    *JOB_OPTIONS,
)
def _edit_job(args: Args) -> None:
    with _job_store() as store:
        job = _save_job(store.find(args.job), args, store)
    print(f"{job.id}  {job.name}: next {_format_job_time(job.next_run) if job.enabled else 'never (paused)'}")


@cron_command.action("pause", "keep a job from running", JOB_ARGUMENT)
def _pause_job(args: Args) -> None:
    from dataclasses import replace  # with `inspect`: the help lists every command

    with _job_store() as store:
        job = store.put(replace(store.find(args.job), enabled=False))
    print(f"{job.name} is paused.")


@cron_command.action("resume", "let a paused job run again", JOB_ARGUMENT)
def _resume_job(args: Args) -> None:
    from hermes_agent.cron.editing import resume_job

    with _job_store() as store:
        job = store.put(resume_job(store.find(args.job), time.time()))
    print(f"{job.name}: next {_format_job_time(job.next_run)}")


@cron_command.action("run", "run a job as soon as the daemon looks, whatever its plan", JOB_ARGUMENT)
def _run_job_now(args: Args) -> None:
    with _job_store() as store:
        job = store.find(args.job)
        store.request_run(job.id, time.time())
    print(f"{job.name} runs within half a minute; `hermes cron runs {job.id}` says what came of it.")
    _warn_without_daemon()


@cron_command.action("remove", "remove a job and what is kept of its runs", JOB_ARGUMENT)
def _remove_job(args: Args) -> None:
    with _job_store() as store:
        job = store.find(args.job)
        store.remove(job.id)
    print(f"{job.name} is removed.")


@cron_command.action("list", "the jobs, by their next run", JSON)
def _list_jobs(args: Args) -> int:
    with _job_store() as store:
        jobs = store.jobs()
    if args.json:
        return print_json([job.to_dict() for job in jobs])
    if not jobs:
        print("No jobs. `hermes cron add 'every day at 9:00' 'What is new?'` adds one.")
    for job in jobs:
        state = _format_job_time(job.next_run) if job.enabled else "done" if job.next_run is None else "paused"
        last = f"  last {job.last_status} {_format_job_time(job.last_run)}" if job.last_run else ""
        print(f"{job.id}  {state:<16}  {job.schedule.text:<20}  {job.name}  → {job.deliver}{last}")
    return EXIT_OK


@cron_command.action(
    "runs",
    "what came of the last runs of a job",
    JOB_ARGUMENT,
    argument("-n", "--limit", type=int, default=10, metavar="N", help="how many (10)"),
    JSON,
)
def _list_runs(args: Args) -> int:
    with _job_store() as store:
        runs = store.runs(store.find(args.job).id, args.limit)
    if args.json:
        return print_json(runs)
    if not runs:
        print("It has not run yet.")
    for run in runs:
        session = f"  session {run['session']}" if run["session"] else ""
        print(f"{_format_job_time(run['started'])}  {run['status']}{session}")
        print("".join(f"    {line}\n" for line in run["output"].splitlines()), end="")
    return EXIT_OK


def _format_job_time(time_s: float | None) -> str:
    return "never" if time_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def _warn_without_daemon() -> None:
    from hermes_agent.service.lock import lock_holder

    if lock_holder(hermes_home()) is None:
        print("No daemon runs: jobs wait until `hermes gateway run` does.", file=sys.stderr)
