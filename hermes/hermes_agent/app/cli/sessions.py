"""`hermes sessions`: what was said."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import TYPE_CHECKING

from hermes_agent.app.cli import keeping

if TYPE_CHECKING:
    from hermes_agent.sessions import SessionInfo, Transcript

__all__ = ["add"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("sessions", help="list, show, search, export and delete conversations")
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the sessions that were used last")
    listing.add_argument("-n", "--limit", type=int, default=20, metavar="N", help="how many (20)")
    listing.add_argument("--source", metavar="NAME", help="only those of this front door: cli, api_server, …")
    listing.add_argument("--all", action="store_true", help="those of everybody, not only your own")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)
    show = actions.add_parser("show", help="the transcript of one session")
    show.add_argument("id", metavar="ID", help="the id, or its beginning")
    show.add_argument("--all", action="store_true", help="also when it is somebody else's")
    show.add_argument("--json", action="store_true", help="print the messages as JSON")
    show.set_defaults(run=_show)
    again = actions.add_parser(
        "replay",
        help="run the turns of a session again, offline, and compare each request with the one that was sent",
        description="Runs the turns of a session again over its stored answers and results. No model is asked and no"
        " tool runs. The exit status is 1 when a request is not the same, byte for byte.",
    )
    again.add_argument("id", metavar="ID", help="the id, or its beginning")
    again.add_argument("--all", action="store_true", help="also when it is somebody else's")
    again.add_argument("--json", action="store_true", help="print JSON")
    again.set_defaults(run=_replay)
    keeping.add(actions, _open, _of)


def _open() -> Transcript | None:
    from hermes_agent.app.daemon_client import refuse_at_a_door
    from hermes_agent.config import hermes_home
    from hermes_agent.sessions import Transcript

    refuse_at_a_door(os.environ, "sessions list and show")
    path = hermes_home() / "state.db"
    return Transcript(path) if path.exists() else None


def _of(args: argparse.Namespace) -> frozenset[str] | None:
    """Return whose sessions are meant; None: everybody's."""
    from hermes_agent import config
    from hermes_agent.sessions import LOCAL, People

    return None if args.all else People(config.load(config.hermes_home()).get("people")).seen_by(LOCAL)


def _list(args: argparse.Namespace) -> int:
    from hermes_agent.app.daemon_client import daemon_door, my_sessions

    if (door := daemon_door(os.environ)) is not None and not args.all:
        return _print_list(args, my_sessions(door, args.limit, args.source))
    transcript = _open()
    found = transcript.recent(args.limit, source=args.source, of=_of(args)) if transcript else []
    return _print_list(args, found)


def _print_list(args: argparse.Namespace, found: list[SessionInfo]) -> int:
    if args.json:
        print(json.dumps([_as_dict(s) for s in found], indent=2, ensure_ascii=False))
        return 0
    if not found:
        print("No sessions yet.")
    for session in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.updated_at))
        print(f"{session.id}  {used}  {_where(session):<10}  {session.message_count:>4}  {session.title}")
    return 0


def _stored(args: argparse.Namespace) -> tuple[Transcript, SessionInfo]:
    from hermes_agent.core.errors import UserError

    transcript = _open()
    if transcript is None:
        raise UserError(f"there is no session {args.id!r}: nothing was said yet")
    return transcript, transcript.find(args.id, of=_of(args))


def _replay(args: argparse.Namespace) -> int:
    import asyncio

    from hermes_agent.agent.replay import replay

    transcript, session = _stored(args)
    turns = asyncio.run(replay(transcript, session.id))
    if args.json:
        fields = ("turn_id", "requests", "differing", "problem")
        print(json.dumps([{name: getattr(t, name) for name in fields} for t in turns], indent=2))
    for turn in () if args.json else turns:
        what = turn.problem or (
            f"not the same: request {', '.join(map(str, turn.differing))}" if turn.differing else "the same"
        )
        print(f"{turn.turn_id}  {turn.requests} request(s)  {what}")
    if not turns and not args.json:
        print("No turn of this session is in the journal.")
    return int(any(t.differing for t in turns))


def _show(args: argparse.Namespace) -> int:
    from hermes_agent.app.daemon_client import daemon_door, my_session

    if (door := daemon_door(os.environ)) is not None and not args.all:
        session, messages = my_session(door, args.id)
    else:
        transcript, session = _stored(args)
        messages = transcript.messages(session.id)
    if args.json:
        print(
            json.dumps({**_as_dict(session), "messages": [m.to_dict() for m in messages]}, indent=2, ensure_ascii=False)
        )
        return 0
    print(f"{session.id}  {session.source}  {session.model}")
    for message in messages:
        label = f"tool {message.tool_name}" if message.role == "tool" else message.role
        print(f"\n[{label}]")
        if message.text:
            print(message.text)
        for call in message.tool_calls:
            print(f"-> {call.name} {call.arguments}")
    return 0


def _where(session: SessionInfo) -> str:
    """Return the front door, and whose the session is where that says more."""
    return session.source if session.principal in ("local", session.source) else session.principal


def _as_dict(session: SessionInfo) -> dict[str, object]:
    return {name: getattr(session, name) for name in session.__slots__}
