"""`hermes hooks`: shell hooks of the config: list, try, allow, revoke, check."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from hermes_agent.app.cli.command import JSON, YES, Args, CliSubcommand, argument, print_json
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError

hooks_command = CliSubcommand(
    "hooks",
    "programs that run on events (shell hooks): list, test, allow, revoke",
    epilog="The key `hooks` of the config declares them; docs/operator/hooks.md shows how.",
)
add_hooks = hooks_command.add


def _configured() -> tuple[Any, Any, list[Any], list[str]]:
    """Return home, consent, hooks and what is wrong with other entries."""
    from hermes_agent.config import hermes_home, load, plain
    from hermes_agent.hooks.shell_consent import HookConsent
    from hermes_agent.hooks.shell_hooks import read_shell_hooks

    home = hermes_home()
    settings = load(home).settings
    hooks, problems = read_shell_hooks(plain(settings.hooks))
    if isinstance(outbound := settings.hooks.outbound, list):
        from hermes_agent.hooks.outbound import read_outbound, split_denied  # few homes have webhooks
        from hermes_agent.policy.network import HostTables

        # secrets are those of the daemon, which may have others than this process
        entries = [{**e, "secret_env": ""} if isinstance(e, dict) else e for e in outbound]
        known, wrong = read_outbound(entries, {})
        problems += [*wrong, *split_denied(known, HostTables(lambda: settings).current().why_denied)[1]]
    return home, HookConsent.from_config(home, settings, os.environ), hooks, problems


@hooks_command.action("list", "the configured programs, and whether each may run", JSON)
def _list(args: Args) -> int:
    _, consent, hooks, problems = _configured()
    rows = [hook._asdict() | {"state": consent.explain(hook) or "allowed"} for hook in hooks]
    if args.json:
        return print_json({"hooks": rows, "problems": problems})
    for row in rows:
        marks = [f"for {row['matcher']}"] if row["matcher"] else []
        marks += [name for name in ("fail_closed", "sandbox") if row[name]]
        marks.append(f"{row['timeout_s']:g} s")
        print(f"{row['event']:<22} {row['command']}  ({', '.join([row['state'], *marks])})")
    for problem in problems:
        print(f"wrong: {problem}", file=sys.stderr)
    if not rows:
        print("The config has no shell hooks (key `hooks`).", file=sys.stderr)
    return EXIT_FAILED if problems else EXIT_OK


@hooks_command.action(
    "test",
    "run the programs of an event now, and show what they answer",
    argument("event", metavar="EVENT", help="such as pre_tool_call"),
    argument("--for-tool", metavar="NAME", default="terminal", help="name of the tool (default: %(default)s)"),
    argument("--payload-file", metavar="FILE", help="JSON object with values of the event; - reads standard input"),
    JSON,
)
def _test(args: Args) -> int:
    from hermes_agent.config.home import profile_name
    from hermes_agent.hooks.catalog import HOOKS
    from hermes_agent.hooks.shell_hooks import ShellHookCallback, run_program
    from hermes_agent.system.processes import tool_environment

    home, consent, hooks, _ = _configured()
    if args.event not in HOOKS:
        raise UserError(
            f"there is no event {args.event!r}", hint=f"Events: {', '.join(HOOKS)}.", exit_status=EXIT_USAGE
        )
    values = {name: f"<{name}>" for name in HOOKS[args.event].keywords} | {"tool_name": args.for_tool, "args": {}}
    values |= _payload(args.payload_file)
    chosen = [hook for hook in hooks if hook.event == args.event]
    results = []
    for hook in chosen:
        seen: list[Any] = []

        def run(*call: Any, seen: list[Any] = seen) -> Any:
            seen.append(run_program(*call))
            return seen[-1]

        env = lambda: {**tool_environment(os.environ), "HERMES_HOME": str(home)}  # noqa: E731
        answer = ShellHookCallback(hook, run, environment=env, cwd=os.getcwd, profile=profile_name(home))(**values)
        done = seen[0]._asdict() if seen else {"problem": f"its matcher leaves {values['tool_name']} out"}
        results.append({"command": hook.command, "state": consent.explain(hook) or "allowed", **done, "answer": answer})
    if args.json:
        return print_json(results)
    for result in results:
        print(f"{result['command']} ({result['state']})")
        for name in ("status", "problem", "stdout", "stderr"):
            if result.get(name) not in (None, ""):
                print(f"  {name}: {str(result[name]).rstrip()}")
        print(f"  answer: {json.dumps(result['answer']) if result['answer'] else 'none'}")
    if not results:
        print(f"The config has no program for {args.event}.", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_FAILED if any(result.get("problem") for result in results) else EXIT_OK


def _payload(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise UserError(f"{name} is no JSON: {exc}", exit_status=EXIT_USAGE) from exc
    if not isinstance(value, dict):
        raise UserError(f"{name} holds no JSON object", exit_status=EXIT_USAGE)
    return value


@hooks_command.action(
    "allow",
    "show the programs that are not approved yet, and allow them",
    argument("command", metavar="COMMAND", nargs="?", default="", help="only this one, as the config has it"),
    YES,
)
def _allow(args: Args) -> int:
    from hermes_agent.app.plugins.terminal_io import confirmed, printable

    _, consent, hooks, problems = _configured()
    consent.accept_all = False
    waiting = [hook for hook in hooks if consent.explain(hook) and args.command in ("", hook.command)]
    if args.command and all(hook.command != args.command for hook in hooks):
        raise UserError(f"the config has no hook with the command {args.command!r}", hint="`hermes hooks list`")
    status = EXIT_OK
    for hook in waiting:
        print(f"{hook.event}: {printable(hook.command)} ({consent.explain(hook)})")
        for line in consent.difference(hook).splitlines():
            print(f"  {printable(line) if line.strip() else ''}")
        if confirmed("Allow it to run?", "allowed", "`hermes hooks allow --yes` allows it", yes=args.yes):
            consent.allow(hook)
            print("Allowed.")
        else:
            status = EXIT_FAILED
    if not waiting:
        print("No shell hook waits.")
    for problem in problems:
        print(f"wrong: {problem}", file=sys.stderr)
    return status


@hooks_command.action(
    "revoke", "withdraw the approval of a program", argument("command", metavar="COMMAND", help="as the config has it")
)
def _revoke(args: Args) -> int:
    _, consent, _, _ = _configured()
    gone = consent.revoke(args.command)
    if not gone:
        raise UserError(f"{args.command!r} was not allowed", hint="`hermes hooks list` shows what is.")
    print(f"Forgotten: {args.command}. A running daemon stops running it after `hermes gateway reload`.")
    return EXIT_OK


@hooks_command.action("doctor", "check that each program can be started, may run, and is set up right", JSON)
def _doctor(args: Args) -> int:
    import shutil

    _, consent, hooks, problems = _configured()
    fine: list[str] = []
    for hook in hooks:
        program = hook.argv()[0]
        if shutil.which(program) is None:
            problems.append(f"hooks.{hook.event}: {hook.command}: {program} is no program that can be run")
        elif why := consent.explain(hook):
            problems.append(f"hooks.{hook.event}: {hook.command}: {why} (`hermes hooks allow`)")
        else:
            fine.append(f"{hook.event}: {hook.command}")
    if args.json:
        print_json({"ok": fine, "wrong": problems})
        return EXIT_FAILED if problems else EXIT_OK
    for each in fine:
        print(f"ok: {each}")
    for problem in problems:
        print(f"wrong: {problem}")
    if not (hooks or problems):
        print("The config has no shell hooks (key `hooks`).")
    return EXIT_FAILED if problems else EXIT_OK


@hooks_command.action("dead", "outbound events that were not delivered", JSON)
def _dead(args: Args) -> int:
    import time

    from hermes_agent.app.plugins.terminal_io import printable

    with _mailbox() as mailbox:
        letters = mailbox.list_dead(_platform())
    rows = [
        {
            "id": letter.id,
            "webhook": letter.chat,
            "event": letter.content.get("event"),
            "state": letter.state,
            "reason": letter.reason,
            "attempts": letter.attempts,
            "created_at": letter.created_at,
        }
        for letter in letters
    ]
    if args.json:
        return print_json(rows)
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created_at"]))
        line = f"{row['id']:>6}  {when}  {row['webhook']}  {row['event']}  {row['state']}: {row['reason']}"
        print(printable(line))
    if not rows:
        print("Every outbound event was delivered, or still waits.")
    return EXIT_OK


@hooks_command.action(
    "retry",
    "send outbound events again that were not delivered",
    argument("ids", metavar="NUMBER", nargs="*", type=int, help="as `hermes hooks dead` shows it"),
    argument("--all", dest="every", action="store_true", help="all of them"),
)
def _retry(args: Args) -> int:
    from hermes_agent.app.daemon_client import ask_daemon
    from hermes_agent.config import hermes_home
    from hermes_agent.service.daemon_state import lock_holder

    if bool(args.ids) == args.every:
        raise UserError("name events, or give --all", hint="`hermes hooks dead` lists them.", exit_status=EXIT_USAGE)
    with _mailbox() as mailbox:
        known = [letter.id for letter in mailbox.list_dead(_platform())]
        wanted = known if args.every else args.ids
        if unknown := sorted(set(wanted) - set(known)):
            raise UserError(f"there is no such event: {unknown[0]}", hint="`hermes hooks dead` lists them.")
        mailbox.retry_dead(_platform(), wanted)
    print(f"{len(wanted)} wait again.")
    if lock_holder(hermes_home()) is None:
        print("No daemon runs; the next one sends them.")
    else:
        ask_daemon(hermes_home(), {"op": "refresh"}, timeout_s=30)
    return EXIT_OK


def _platform() -> str:
    from hermes_agent.workspace.outbound_delivery import PLATFORM

    return PLATFORM


def _mailbox() -> Any:
    import contextlib

    from hermes_agent.config import hermes_home
    from hermes_agent.delivery import Mailbox

    return contextlib.closing(Mailbox(hermes_home() / "state.db"))
