"""`hermes cron` and `hermes memory`: scheduled jobs, and the memory provider."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import (
    JSON,
    Args,
    CliSubcommand,
    activity,
    argument,
    ensure_home,
    loaded_host,
    print_json,
)
from hermes_agent.config import hermes_home, load
from hermes_agent.config.settings import section
from hermes_agent.core.errors import EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.cron import Job, JobStore
    from hermes_agent.host import Host
    from hermes_agent.memory.provider_session import SetupField


cron_command = CliSubcommand("cron", "list, add and change scheduled jobs")
add_cron = cron_command.add

JOB_ARGUMENT = argument("job", metavar="JOB", help="id, beginning of an id, or name")
JOB_OPTIONS = (
    argument("--name", metavar="TEXT"),
    argument("--deliver", metavar="WHERE", help="local, or PLATFORM[:CHAT[:THREAD]], several with commas"),
    argument("--repeat", type=int, metavar="N", help="how many times; 0: without end"),
    argument("--skill", dest="skills", action="append", metavar="NAME", help="a skill that the job uses; repeatable"),
    argument("--toolset", dest="enabled_toolsets", action="append", metavar="NAME", help="repeatable"),
    argument("--model", metavar="NAME"),
    argument("--script", metavar="FILE", help="a file in HOME/scripts that runs first"),
    argument(
        "--no-agent",
        action="store_true",
        default=None,
        help="the output of the script is the answer; no model is asked",
    ),
    argument(
        "--context-from",
        action="append",
        metavar="JOB",
        help="add the last answer of this job to the prompt; repeatable",
    ),
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
    from hermes_agent.cron.jobs import check_platforms, edit_job, targets_of

    others, said = {other.id: other for other in store.jobs()}, _job_fields(args, store)
    made = edit_job(job, said, home=hermes_home(), now=time.time(), others=others)
    if args.deliver is not None and targets_of(made):
        with _target_problems() as faults:
            check_platforms(made, said, faults)
    return store.put(made)


@contextlib.contextmanager
def _target_problems() -> Iterator[Callable[[str], str]]:
    """Yield the function that explains an unusable target; plugins are loaded, since they bring platforms."""
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
    "change a job; settings that are not given stay",
    JOB_ARGUMENT,
    argument("--schedule", metavar="WHEN"),
    argument("--prompt", metavar="TEXT"),
    *JOB_OPTIONS,
)
def _edit_job(args: Args) -> None:
    with _job_store() as store:
        job = _save_job(store.find(args.job), args, store)
    print(f"{job.id}  {job.name}: next {_format_job_time(job.next_run) if job.enabled else 'never (paused)'}")


@cron_command.action("pause", "pause a job", JOB_ARGUMENT)
def _pause_job(args: Args) -> None:
    from dataclasses import replace  # imports `inspect`, which the help does not need

    with _job_store() as store:
        job = store.put(replace(store.find(args.job), enabled=False))
    print(f"{job.name} is paused.")


@cron_command.action("resume", "resume a paused job", JOB_ARGUMENT)
def _resume_job(args: Args) -> None:
    from hermes_agent.cron.jobs import resume_job

    with _job_store() as store:
        job = store.put(resume_job(store.find(args.job), time.time()))
    print(f"{job.name}: next {_format_job_time(job.next_run)}")


@cron_command.action("run", "run a job now, outside its schedule", JOB_ARGUMENT)
def _run_job_now(args: Args) -> None:
    with _job_store() as store:
        job = store.find(args.job)
        store.request_run(job.id, time.time())
    print(f"{job.name} runs within half a minute; `hermes cron runs {job.id}` says what came of it.")
    _warn_without_daemon()


@cron_command.action("remove", "remove a job and the record of its runs", JOB_ARGUMENT)
def _remove_job(args: Args) -> None:
    with _job_store() as store:
        job = store.find(args.job)
        store.remove(job.id)
    print(f"{job.name} is removed.")


@cron_command.action("list", "list the jobs, sorted by their next run", JSON)
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
    "show the results of the last runs of a job",
    JOB_ARGUMENT,
    argument("-n", "--limit", type=int, default=10, metavar="N", help="number of runs (default: 10)"),
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
    from hermes_agent.service.daemon_state import lock_holder

    if lock_holder(hermes_home()) is None:
        print("No daemon runs: jobs wait until `hermes gateway run` does.", file=sys.stderr)


MEMORY_KEY = ("memory", "provider")

memory_command = CliSubcommand("memory", "choose and set up the memory provider")
add_memory = memory_command.add


@memory_command.action(
    "setup",
    "choose a memory provider and enter its settings",
    argument("name", metavar="NAME", nargs="?", default="", help="the provider; without it, choose from a list"),
    argument(
        "--set",
        dest="given",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting, so that it is not asked for; `KEY=-` reads it from standard input",
    ),
)
def _set_up_memory(args: Args) -> None:
    from hermes_agent.config.edit import set_value  # imports YAML, needed only for changes
    from hermes_agent.memory.provider_session import configure_provider

    home = hermes_home()
    known = _known_memories(home)
    name = args.name or _choose_memory(sorted(known))
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise UserError(
            f"there is no memory provider {name!r}; these are: {names}", hint="`hermes plugins install` adds others."
        )
    before = load(home).settings.memory.provider
    set_value(home, MEMORY_KEY, name)
    try:
        with loaded_host() as host:
            provider = _memory_provider(host)
            configure_provider(provider, home, _ask_field, _save_value, _parse_values(args.given))
            with activity(f"asking {name} whether it is available"):
                available = provider.is_available()
    except BaseException:
        set_value(home, MEMORY_KEY, before or "")
        raise
    print(f"memory.provider is {name}. A running daemon uses it after a restart.")
    if not available:
        print(f"{name} says that it is not available yet: `hermes memory status` shows what it lacks.")


@memory_command.action("status", "show the provider, what it lacks, and the agent's own notes", JSON)
def _memory_status(args: Args) -> int:
    from hermes_agent.memory.notes import FILES, Notes, NoteSettings, notes_folder
    from hermes_agent.memory.provider_session import setup_fields

    home = hermes_home()
    with loaded_host() as host:
        settings = host.config.settings.memory
        name = settings.provider
        limits = section(NoteSettings, settings).limits()
        report: dict[str, Any] = {"provider": name or None, "known": sorted(_known_memories(home))}
        choice = host.providers.choose("memory", host.config.values)
        if choice.provider is not None:
            fields = setup_fields(choice.provider)
            lacks = [f.env_var or f.key for f in fields if f.required and f.env_var and not f.is_set]
            report |= {"plugin": host.providers["memory"].owner(choice.provider.name), "lacks": lacks}
            with activity(f"asking {name} whether it is available"):
                report["available"] = bool(choice.provider.is_available())
        elif name:
            report |= {"available": False, "why": choice.reason}
    notes = Notes(notes_folder(home, ""), limits)
    report["notes"] = {FILES[t]: notes.usage(t, notes.entries(t)) for t in limits}
    if args.json:
        return print_json(report)
    print(f"provider: {name}, {'available' if report['available'] else 'not available'}" if name else "provider: none")
    for line in (report.get("why"), *(f"it lacks {lack}" for lack in report.get("lacks", ()))):
        if line:
            print(f"  {line}")
    print(f"there are: {', '.join(report['known']) or 'none'}")
    for file, usage in report["notes"].items():
        print(f"memories/{file}: {usage}")
    return EXIT_OK


@memory_command.action("off", "use no provider; its data stays")
def _turn_memory_off(args: Args) -> None:
    from hermes_agent.config.edit import set_value  # as in _setup

    home = hermes_home()
    before = load(home).settings.memory.provider
    if not before:
        print("No memory provider is used.")
        return
    set_value(home, MEMORY_KEY, "")
    print(f"{before} is not used any more, from the next start on. What it knows stays where it is.")


def _known_memories(home: Path) -> dict[str, str]:
    """Return the available memory plugins with their descriptions; none is imported."""
    from hermes_agent.plugins.discovery import BUNDLED, add_every_memory_folder, bundled_memories, discover
    from hermes_agent.plugins.manifest import read_manifest

    manifests = [
        read_manifest(str(f / "plugin.yaml"), source=BUNDLED, category="memory") for f in bundled_memories().values()
    ]
    found = discover(home, os.environ, Path.cwd())
    add_every_memory_folder(found, home, "")
    manifests += [m for m in found.plugins.values() if m.kind == "exclusive"]
    return {manifest.folder or manifest.name: manifest.description for manifest in manifests}


def _memory_provider(host: Host) -> Any:
    choice = host.providers.choose("memory", host.config.values)
    if choice.provider is None:
        failed = [r for r in host.plugins.records if r.manifest.kind == "exclusive" and r.error and not r.enabled]
        said = "; ".join(f"{r.manifest.key}: {r.error}" for r in failed if r.status == "failed")
        raise UserError(
            f"the memory provider was not loaded: {said or choice.reason}", hint="`hermes plugins doctor` says more."
        )
    return choice.provider


def _choose_memory(names: list[str]) -> str:
    if not sys.stdin.isatty():
        raise UserError("which memory provider?", hint=f"hermes memory setup NAME, one of: {', '.join(names)}")
    for number, name in enumerate(names, 1):
        print(f"  {number}. {name}")
    answer = input("Which one? ").strip()
    return names[int(answer) - 1] if answer.isdigit() and 0 < int(answer) <= len(names) else answer


def _parse_values(pairs: list[str]) -> dict[str, str]:
    given = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise UserError(f"--set {pair}: expected KEY=VALUE")
        given[key.strip()] = sys.stdin.readline().strip() if value == "-" else value
    return given


def _ask_field(field: SetupField) -> str:
    if not sys.stdin.isatty():
        return field.default
    import getpass

    about = f" ({field.url})" if field.url else ""
    choices = f" [{', '.join(field.choices)}]" if field.choices else ""
    default = " [kept]" if field.is_set else f" [{field.default}]" if field.default else ""
    prompt = f"{field.description}{about}{choices}{default}: "
    answer = getpass.getpass(prompt) if field.secret else input(prompt)
    return answer.strip() or ("" if field.is_set else field.default)


def _save_value(name: str, value: str) -> None:
    from hermes_agent.compat.config import save_env_value

    save_env_value(name, value)
