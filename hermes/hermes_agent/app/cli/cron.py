"""`hermes cron`: work at its time."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_agent.cron import Job, JobStore

__all__ = ["add"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("cron", help="work at its time: list, add and change scheduled jobs")
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="the jobs, by their next run")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)

    add_ = actions.add_parser("add", help="add a job", description="The daemon (`hermes gateway run`) runs it.")
    add_.add_argument("schedule", metavar="WHEN", help="`every day at 9:00`, `0 9 * * 1-5`, `in 2h`, …")
    add_.add_argument("prompt", metavar="PROMPT", nargs="?", default="", help="what to do")
    _options(add_)
    add_.set_defaults(run=_add)

    edit = actions.add_parser("edit", help="change a job; what is not named stays")
    edit.add_argument("job", metavar="JOB", help="id, its beginning, or name")
    edit.add_argument("--schedule", metavar="WHEN")
    edit.add_argument("--prompt", metavar="TEXT")
    _options(edit)
    edit.set_defaults(run=_edit)

    for name, text, run in (
        ("pause", "keep a job from running", _pause),
        ("resume", "let a paused job run again", _resume),
        ("run", "run a job as soon as the daemon looks, whatever its plan", _run_now),
        ("remove", "remove a job and what is kept of its runs", _remove),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("job", metavar="JOB", help="id, its beginning, or name")
        action.set_defaults(run=run)

    runs = actions.add_parser("runs", help="what came of the last runs of a job")
    runs.add_argument("job", metavar="JOB", help="id, its beginning, or name")
    runs.add_argument("-n", "--limit", type=int, default=10, metavar="N", help="how many (10)")
    runs.add_argument("--json", action="store_true", help="print JSON")
    runs.set_defaults(run=_runs)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="TEXT")
    parser.add_argument("--deliver", metavar="WHERE", help="local, or PLATFORM[:CHAT[:THREAD]], several with commas")
    parser.add_argument("--repeat", type=int, metavar="N", help="how often; 0 for ever")
    parser.add_argument(
        "--skill", dest="skills", action="append", metavar="NAME", help="a skill to keep to; repeatable"
    )
    parser.add_argument("--toolset", dest="enabled_toolsets", action="append", metavar="NAME", help="repeatable")
    parser.add_argument("--model", metavar="NAME")
    parser.add_argument("--script", metavar="FILE", help="a file in HOME/scripts that runs first")
    parser.add_argument(
        "--no-agent", action="store_true", default=None, help="what the script prints is the answer, no model is asked"
    )
    parser.add_argument(
        "--context-from", action="append", metavar="JOB", help="tell what this job said last; repeatable"
    )
    parser.add_argument("--workdir", metavar="DIR")


@contextlib.contextmanager
def _store() -> Iterator[JobStore]:
    from hermes_agent.config import hermes_home, make_home
    from hermes_agent.cron import JobStore

    home = hermes_home()
    make_home(home)
    with contextlib.closing(JobStore(home / "state.db")) as store:
        yield store


def _said(args: argparse.Namespace, store: JobStore) -> dict[str, Any]:
    said = {k: v for k, v in vars(args).items() if k not in ("run", "job")}
    if said["context_from"]:
        said["context_from"] = [store.find(name).id for name in said["context_from"]]
    return said


def _put(job: Job, args: argparse.Namespace, store: JobStore) -> Job:
    from hermes_agent.config import hermes_home
    from hermes_agent.cron.editing import changed_job

    others = {other.id: other for other in store.jobs()}
    return store.put(changed_job(job, _said(args, store), home=hermes_home(), now=time.time(), others=others))


def _add(args: argparse.Namespace) -> int:
    from hermes_agent.cron import Job, Schedule

    with _store() as store:
        job = _put(Job("", "", Schedule("once", ""), created=time.time()), args, store)
    print(f"{job.id}  {job.name}: next {_at(job.next_run)}")
    _warn_without_daemon()
    return 0


def _edit(args: argparse.Namespace) -> int:
    with _store() as store:
        job = _put(store.find(args.job), args, store)
    print(f"{job.id}  {job.name}: next {_at(job.next_run) if job.enabled else 'never (paused)'}")
    return 0


def _pause(args: argparse.Namespace) -> int:
    from dataclasses import replace

    with _store() as store:
        job = store.put(replace(store.find(args.job), enabled=False))
    print(f"{job.name} is paused.")
    return 0


def _resume(args: argparse.Namespace) -> int:
    from hermes_agent.cron.editing import resumed_job

    with _store() as store:
        job = store.put(resumed_job(store.find(args.job), time.time()))
    print(f"{job.name}: next {_at(job.next_run)}")
    return 0


def _run_now(args: argparse.Namespace) -> int:
    with _store() as store:
        job = store.find(args.job)
        store.ask_for(job.id, time.time())
    print(f"{job.name} runs within half a minute; `hermes cron runs {job.id}` says what came of it.")
    _warn_without_daemon()
    return 0


def _remove(args: argparse.Namespace) -> int:
    with _store() as store:
        job = store.find(args.job)
        store.remove(job.id)
    print(f"{job.name} is removed.")
    return 0


def _list(args: argparse.Namespace) -> int:
    with _store() as store:
        jobs = store.jobs()
    if args.json:
        print(json.dumps([job.to_dict() for job in jobs], indent=2, ensure_ascii=False))
        return 0
    if not jobs:
        print("No jobs. `hermes cron add 'every day at 9:00' 'What is new?'` adds one.")
    for job in jobs:
        state = _at(job.next_run) if job.enabled else "done" if job.next_run is None else "paused"
        last = f"  last {job.last_status} {_at(job.last_run)}" if job.last_run else ""
        print(f"{job.id}  {state:<16}  {job.schedule.text:<20}  {job.name}  → {job.deliver}{last}")
    return 0


def _runs(args: argparse.Namespace) -> int:
    with _store() as store:
        runs = store.runs(store.find(args.job).id, args.limit)
    if args.json:
        print(json.dumps(runs, indent=2, ensure_ascii=False))
        return 0
    if not runs:
        print("It has not run yet.")
    for run in runs:
        session = f"  session {run['session']}" if run["session"] else ""
        print(f"{_at(run['started'])}  {run['status']}{session}")
        print("".join(f"    {line}\n" for line in run["output"].splitlines()), end="")
    return 0


def _at(time_s: float | None) -> str:
    return "never" if time_s is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def _warn_without_daemon() -> None:
    import sys

    from hermes_agent.config import hermes_home
    from hermes_agent.service.lock import holder

    if holder(hermes_home()) is None:
        print("No daemon runs: jobs wait until `hermes gateway run` does.", file=sys.stderr)
