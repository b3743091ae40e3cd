"""`hermes gateway`, `hermes pairing` and `hermes send`.

`gateway` runs and controls the daemon. `pairing` allows users of chat platforms. `send` stores a text for a chat in the
outbox, where it waits if no daemon runs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import (
    ACCEPT_HOOKS,
    JSON,
    Args,
    CliSubcommand,
    activity,
    argument,
    ensure_home,
    exclusive,
    print_json,
)
from hermes_agent.app.daemon_client import ask_daemon, daemon_socket
from hermes_agent.config import load
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.gateway.access import PairingStore
    from hermes_agent.server import HttpSettings


logger = logging.getLogger(__name__)

RETURNS_WITHIN_S = 60.0
"""Longest time in seconds that a restarting daemon may leave the home without an owner."""

gateway_command = CliSubcommand("gateway", "run and control the daemon")
add_gateway = gateway_command.add


@gateway_command.action(
    "run",
    "run the daemon in the foreground, with the HTTP server",
    ACCEPT_HOOKS,
    exclusive(
        argument("-v", "--verbose", dest="log_level", action="store_const", const="DEBUG", help="log everything"),
        argument(
            "-q",
            "--quiet",
            dest="log_level",
            action="store_const",
            const="WARNING",
            help="log warnings and errors only",
        ),
    ),
)
def _run_daemon(args: Args) -> int:
    from hermes_agent.app.daemon_process import run_daemon_process

    return run_daemon_process(log_level=args.log_level)


@gateway_command.action(
    "setup",
    "set up a chat platform: its settings and its users",
    argument("platform", metavar="PLATFORM", nargs="?", help="the platform; without it, choose from a list"),
)
def _setup(args: Args) -> int:
    from hermes_agent.app.gateway_commands import set_up
    from hermes_agent.app.start import start_host

    ensure_home()
    with activity("loading the agent and its plugins"):
        host = start_host()
    try:
        return set_up(host, args.platform)
    finally:
        host.bridge.close()


@gateway_command.action("key", "print the key of the HTTP server; creates it if there is none")
def _key(args: Args) -> None:
    from hermes_agent.server import with_key

    home = ensure_home()
    print(with_key(_settings(home), home).key)


@gateway_command.action("status", "show whether the daemon runs and answers (exit status 1: no)", JSON)
def _status(args: Args) -> int:
    from hermes_agent.app.gateway_commands import collect_from_socket, collect_status, status_text

    if (door := daemon_socket(os.environ)) is not None:
        with activity("asking the daemon"):
            found = collect_from_socket(door)
    else:
        home = ensure_home()
        with activity("asking the daemon"):
            found = collect_status(home, lambda: _settings(home).key)
    print(json.dumps(found, indent=2) if args.json else status_text(found))
    well = found["running"] and found.get("http", {}).get("status") in ("ok", "off")
    return EXIT_OK if well else EXIT_FAILED


def _ask_daemon(op: str, *, timeout_s: float = 30.0, **more: Any) -> dict[str, Any]:
    home = ensure_home() if daemon_socket(os.environ) is None else Path()
    with activity("waiting for the daemon"):
        return ask_daemon(home, {"op": op, **more}, timeout_s=timeout_s)


@gateway_command.action(
    "stop",
    "stop the daemon after the running turns",
    argument("--now", action="store_true", help="do not wait for running turns; they resume at the next start"),
)
def _stop(args: Args) -> None:
    from hermes_agent.service.daemon_state import lock_holder

    door = daemon_socket(os.environ)
    if door is None and lock_holder(ensure_home()) is None:
        print("not running")
        return
    pid = _ask_daemon("stop", now=args.now)["pid"]
    waits_for = "the daemon to end" if args.now else "the running turns to end (--now does not wait)"
    with activity(f"waiting for {waits_for}"):
        while door.exists() if door is not None else lock_holder(ensure_home()) == pid:
            time.sleep(0.1)
    print(f"stopped (pid {pid})")


@gateway_command.action("restart", "restart the daemon, for example after an update; nothing is lost")
def _restart(args: Args) -> int:
    with activity("waiting for the daemon to come back"):
        pid = _restarted_pid()
    print(f"restarted (pid {pid})")
    return EXIT_OK


def _restarted_pid() -> int:
    """Restart the daemon, and return the process that answers then."""
    before = _ask_daemon("status")["started"]
    _ask_daemon("restart")
    silent_since = 0.0
    while True:
        time.sleep(0.2)
        try:
            now = _ask_daemon("status")
        except UserError as exc:  # no daemon answers between the two processes
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > RETURNS_WITHIN_S:
                raise UserError("the daemon has ended and not come back", hint="`hermes logs` says why.") from exc
            continue
        silent_since = 0.0
        if now["started"] != before:
            return int(now["pid"])


@gateway_command.action("reload", "load plugins and config again, and show what changed")
def _reload(args: Args) -> None:
    with activity("the daemon loads plugins and config again"):
        changes = _ask_daemon("reload", timeout_s=120)["told"]
    print("\n".join(changes) or "nothing changed")


@gateway_command.action(
    "revive",
    "send again to a parked target",
    argument("target", metavar="TARGET", help="as `hermes gateway status` lists it, or all"),
)
def _revive(args: Args) -> None:
    for target in _ask_daemon("revive", target=args.target)["revived"]:
        print(f"{target}: what waited is sent now")


def _settings(home: Path) -> HttpSettings:
    from hermes_agent.credentials import Credentials
    from hermes_agent.server import read_settings

    return read_settings(load(home).settings, Credentials(home, os.environ))


pairing_command = CliSubcommand("pairing", "allow users of chat platforms, and revoke it")
add_pairing = pairing_command.add

PLATFORM_ARGUMENT = argument("platform", metavar="PLATFORM")


@contextlib.contextmanager
def _pairing_store() -> Iterator[PairingStore]:
    """Yield the store of a platform; an impossible name of a platform is a usage error."""
    from hermes_agent.gateway.access import PairingStore

    try:
        yield PairingStore()
    except ValueError as error:
        raise UserError(str(error)) from error


@pairing_command.action(
    "list",
    "list the pending requests and the allowed users",
    argument("--platform", metavar="NAME", help="only this platform"),
    JSON,
)
def _list_pairings(args: Args) -> int:
    with _pairing_store() as store:
        pending, approved = store.list_pending(args.platform), store.list_approved(args.platform)
    if args.json:
        return print_json({"pending": pending, "approved": approved})
    if not pending and not approved:
        print("There are no pending requests and no allowed users.")
    if pending:
        print("Waiting (approve with: hermes pairing approve PLATFORM CODE):")
    for one in pending:
        name = f" {one['user_name']}" if one["user_name"] else ""
        print(
            f"  {one['platform']:<12} {one['user_id']}{name}  request {one['request_id']}, {one['age_minutes']} min ago"
        )
    if approved:
        print("Allowed:")
    for one in approved:
        name = f" {one['user_name']}" if one.get("user_name") else ""
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.get("approved_at", 0)))
        print(f"  {one['platform']:<12} {one['user_id']}{name}  since {since}")
    return 0


@pairing_command.action(
    "approve",
    "allow the user who was given a code",
    PLATFORM_ARGUMENT,
    argument("code", metavar="CODE", help="the code, or the request's id in `hermes pairing list`"),
)
def _approve_user(args: Args) -> int:
    with _pairing_store() as store:
        person = store.approve_code(args.platform, args.code)
    if person is None:
        raise UserError(
            f"no user of {args.platform} has a pending request with this code",
            hint="A code is valid for an hour; five wrong codes block the platform for an hour."
            " `hermes pairing list` shows the pending requests.",
        )
    name = f" ({person['user_name']})" if person["user_name"] else ""
    print(f"{person['user_id']}{name} may use the agent on {args.platform}.")
    return 0


@pairing_command.action(
    "revoke",
    "revoke the permission of a user",
    PLATFORM_ARGUMENT,
    argument("user", metavar="USER", help="the user's id in `hermes pairing list`"),
)
def _revoke_user(args: Args) -> int:
    with _pairing_store() as store:
        gone = store.revoke(args.platform, args.user)
    if not gone:
        raise UserError(
            f"{args.user} was not allowed on {args.platform} by a code",
            hint="`hermes pairing list` shows who was. Allow lists are variables and keys of the config.",
        )
    print(f"{args.user} may no longer use the agent on {args.platform}.")
    return 0


@pairing_command.action(
    "clear-pending",
    "delete the pending codes",
    argument("platform", metavar="PLATFORM", nargs="?", help="only this platform"),
)
def _clear_pairings(args: Args) -> int:
    with _pairing_store() as store:
        count = store.clear_pending(args.platform)
    print(f"{count} code{'' if count == 1 else 's'} voided.")
    return 0


DEFAULT_LENGTH_LIMIT = 2000
"""Characters of one message if the platform does not report its limit."""

send_command = CliSubcommand(
    "send",
    "send a text to a chat",
    description="Send a text to a chat. It is stored first: when no daemon runs, the next one sends it.",
)
add_send = send_command.add


@send_command.default(
    argument(
        "--to",
        required=True,
        metavar="PLATFORM[:CHAT[:THREAD]]",
        help="the target; without a chat, the platform's home channel",
    ),
    argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait until the platform has it (exit status 1: it has not)",
    ),
    argument("text", nargs="*", metavar="TEXT", help="the text; without it, or as -, standard input is read"),
)
def _send_text(args: Args) -> int:
    from hermes_agent.service.daemon_state import lock_holder

    text = sys.stdin.read() if args.text in ([], ["-"]) else " ".join(args.text)
    if not text.strip():
        raise UserError("there is nothing to send", hint="Give a text, or pipe one in.")
    home = ensure_home() if daemon_socket(os.environ) is None else Path()
    if daemon_socket(os.environ) is None and lock_holder(home) is None:
        return _store_text(args, text, home)
    question = {"op": "send", "to": args.to, "text": text, "wait_s": args.wait}
    with activity("waiting for the platform" if args.wait else "waiting for the daemon"):
        answer = ask_daemon(home, question, timeout_s=args.wait + 30)
    print(f"{answer['state']}: {answer['reply']}")
    sent = answer["state"] == "sent" or (answer["state"] == "pending" and not args.wait)
    return EXIT_OK if sent else EXIT_FAILED


def _store_text(args: Args, text: str, home: Path) -> int:
    from hermes_agent.adapters.text import split_message
    from hermes_agent.delivery import Mailbox, OutboundReply
    from hermes_agent.gateway.chat_messages import parse_chat_target

    platform, _, rest = args.to.partition(":")
    if not rest:
        raise UserError(
            "no daemon runs, and it alone knows the home channel", hint=f"Say which chat: `--to {platform}:CHAT`."
        )
    parts = tuple({"text": one} for one in split_message(text, DEFAULT_LENGTH_LIMIT, None))
    with contextlib.closing(Mailbox(home / "state.db")) as mailbox:
        reply = mailbox.enqueue(OutboundReply(parse_chat_target(platform, rest), parts), time.time())
    print(f"stored: {reply.id}; no daemon runs, the next one sends it")
    return EXIT_FAILED if args.wait else EXIT_OK
