"""`hermes` as a client of the machine's daemon, for members of the daemon's group.

A client can chat, and run `send`, `sessions` and `gateway status`. `$HERMES_DAEMON_SOCKET` names the control socket of
the daemon; `hermes --instance NAME` sets it. A user without write access to it, or with `HERMES_HOME` set, has an agent
of their own instead.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError
from hermes_agent.system.files import write_atomic

if TYPE_CHECKING:
    from hermes_agent.core.messages import Message
    from hermes_agent.sessions import SessionInfo


VARIABLE = "HERMES_DAEMON_SOCKET"
DEFAULT_INSTANCE = "default"
CLIENT_COMMANDS = ("chat", "gateway", "send", "sessions")
"""Subcommands of a client; the others act on a home."""
_RUN = Path("/run")
_DIRECTORY = "hermes-agent"
"""Directory of the daemon's control socket in `/run`; `hermes-agent-NAME` is that of another instance."""


def daemon_socket(environ: Mapping[str, str]) -> Path | None:
    """Return the socket of the daemon of this client, or None for a command on a home of its own."""
    named = environ.get(VARIABLE, "")
    return Path(named) if named and not environ.get("HERMES_HOME") and os.access(named, os.W_OK) else None


def select_instance(argv: Sequence[str], environ: MutableMapping[str, str], run: Path = _RUN) -> list[str]:
    """Remove `--instance NAME` from a command line, and make the command a client of that daemon.

    Args:
        run: directory with the directories of control sockets.

    Raises:
        UserError: the name is missing, that daemon does not run, this user may not ask it, or a client cannot do it.
    """
    first, *rest = argv
    _, equals, name = first.partition("=")
    if not equals and rest:
        name, *rest = rest
    if not name:
        raise UserError("`--instance` needs the name of an agent", hint=_running(run), exit_status=EXIT_USAGE)
    directory = run / (_DIRECTORY if name == DEFAULT_INSTANCE else f"{_DIRECTORY}-{name}")
    if "/" in name or not directory.is_dir():
        raise UserError(f"no agent {name!r} runs on this machine", hint=_running(run))
    door = directory / "control.sock"
    if not os.access(door, os.W_OK):
        raise UserError(
            f"the agent {name!r} does not answer you at {door}",
            hint=f"Root and members of the group `{_group(directory)}` may ask it; its unit is {directory.name}.",
        )
    environ.pop("HERMES_HOME", None)
    environ[VARIABLE] = str(door)
    if rest and not rest[0].startswith("-") and rest[0] not in CLIENT_COMMANDS:
        refuse_remote(environ, "`chat`, `send`, `sessions` and `gateway status`")
    return rest


def _running(run: Path) -> str:
    names = [
        found.name.removeprefix(_DIRECTORY).removeprefix("-") or DEFAULT_INSTANCE
        for found in sorted(run.glob(f"{_DIRECTORY}*"))
        if found.is_dir()
    ]
    return f"There is: {', '.join(names)}." if names else "None runs; `systemctl list-units 'hermes-agent*'` shows why."


def _group(directory: Path) -> str:
    try:
        return directory.group()
    except KeyError:  # a number without a name
        return str(directory.stat().st_gid)


def _service_command(door: Path) -> str:
    """Return the operator's command for the daemon of a control socket."""
    name = door.parent.name.removeprefix(_DIRECTORY).removeprefix("-")
    return f"hermes-{name}" if name and door.parent.name.startswith(_DIRECTORY) else "hermes-service"


def refuse_remote(environ: Mapping[str, str], instead: str) -> None:
    """Refuse a command that a client cannot run: it would act on the wrong home.

    Raises:
        UserError: this command is a client.
    """
    if (door := daemon_socket(environ)) is not None:
        raise UserError(
            f"the daemon at {door} is asked for {instead} alone, of your own sessions",
            hint=f"An operator has `sudo {_service_command(door)}`; with HERMES_HOME set, `hermes` works in that home.",
        )


def ask_daemon(home: Path, question: Mapping[str, Any], *, timeout_s: float = 30.0) -> dict[str, Any]:
    """Send a request to the daemon of this command: the machine's daemon, or that of the home.

    Raises:
        UserError: no daemon runs, or it refuses.
    """
    from hermes_agent.service.control_socket import (
        request,
        request_at,
    )  # asyncio: not for a command that sends no request
    from hermes_agent.service.daemon_state import lock_holder

    if (door := daemon_socket(os.environ)) is not None:
        return request_at(door, question, timeout_s=timeout_s)
    try:
        return request(home, question, timeout_s=timeout_s)  # first: a daemon that restarts does not hold the home
    except UserError:
        if lock_holder(home) is None:
            raise UserError(f"no daemon runs with the home {home}", hint="`hermes gateway run` starts one.") from None
        raise


def list_sessions(door: Path, limit: int, source: str | None) -> list[SessionInfo]:
    """Return the sessions that were used last, newest first."""
    from hermes_agent.sessions import SessionInfo

    answer = _ask(door, {"op": "sessions", "limit": limit, "source": source}, timeout_s=30)
    return [SessionInfo(**each) for each in answer["sessions"]]


def load_session(door: Path, session_id: str) -> tuple[SessionInfo, list[Message]]:
    """Return a session and its messages, by the beginning of its id."""
    from dataclasses import replace  # imports `inspect`, which the help does not need

    from hermes_agent.core.messages import Message
    from hermes_agent.sessions import SessionInfo

    answer = _ask(door, {"op": "session", "id": session_id}, timeout_s=30)
    messages = [replace(Message.from_dict(each), tool_name=each["tool_name"]) for each in answer["messages"]]
    return SessionInfo(**answer["session"]), messages


def converse(door: Path, args: argparse.Namespace) -> int:
    """Ask the question of the command line, or each line of input; return the exit status."""
    if args.model:
        raise UserError(
            "the daemon's model is its operator's choice", hint="Leave --model out.", exit_status=EXIT_USAGE
        )
    question = args.oneshot
    if question == "-" or (question is None and args.first is None and not sys.stdin.isatty()):
        question = sys.stdin.read()
    session = "last" if args.continue_last else args.resume or ""
    if question is not None:
        return _answer(door, question, session)[0]
    return _chat(door, args.first, session)


def _chat(door: Path, first: str | None, session: str) -> int:
    import readline  # noqa: F401 - input() edits its line with it

    from hermes_agent.commands.declarations import all_names  # nothing that the other commands need

    exit_words = [sign + name for sign in ("/", "") for name in all_names("quit")]
    new_session_words = [f"/{name}" for name in all_names("new")]
    print(f"The agent of this machine ({door}). /new starts a new session, /help lists more; exit or Ctrl-D leaves.")
    status = EXIT_OK
    while True:
        try:
            line = first if first is not None else input("› ")
        except (EOFError, KeyboardInterrupt):
            print()
            return status
        first = None
        if line.strip().lower() in exit_words:
            return status
        if line.strip() in new_session_words:
            session = ""
        elif line.strip():
            try:
                status, session = _answer(door, line, session)
            except UserError as error:
                print(f"hermes: {error}", file=sys.stderr)
                status = EXIT_FAILED
            except KeyboardInterrupt:  # the daemon stops a turn without a waiting client
                print("\nstopped")
        if not sys.stdin.isatty():
            return status


def _answer(door: Path, question: str, session: str) -> tuple[int, str]:
    from hermes_agent.console.styled import printable

    if not question.strip():
        raise UserError("there is no question", exit_status=EXIT_USAGE)
    answer = _ask(door, {"op": "talk", "text": question.strip(), "session": session}, timeout_s=None)
    for notice in answer["notices"]:
        print(printable(notice), file=sys.stderr)
    why = str(answer.get("not_whole") or "")
    if answer["text"] or not why:
        print(printable(answer["text"]))
    if why:
        print(f"hermes: {printable(why)}", file=sys.stderr)
    failed = bool(why) or answer["reason"] == "interrupted"
    return EXIT_FAILED if failed else EXIT_OK, answer["session"]


def _ask(door: Path, question: Mapping[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
    from hermes_agent.service.control_socket import request_at

    return request_at(door, {**question, "key": _key(os.environ)}, timeout_s=timeout_s)


def _key(environ: Mapping[str, str]) -> str:
    """Return the key that identifies the sessions of this user; a missing key is created."""
    state = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state, "hermes", "daemon-key")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            import secrets  # imports every hash; needed only once

            write_atomic(file, secrets.token_urlsafe(32) + "\n", mode=0o600)
        return file.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise UserError(f"{file}: {exc.strerror}", hint="It keeps your sessions apart from those of others.") from exc
