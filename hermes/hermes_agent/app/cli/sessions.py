"""`hermes sessions` and `hermes rollback`.

`sessions` lists, searches, exports and deletes sessions. `rollback` restores files from checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_agent.app import daemon_client
from hermes_agent.app.cli.command import JSON, YES, Args, CliSubcommand, activity, argument, print_json
from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.sessions import SessionInfo, Transcript
    from hermes_agent.workspace.checkpoints import Checkpoints
    from hermes_agent.workspace.shadow_repository import Checkpoint


DAY_S = 86_400

sessions_command = CliSubcommand("sessions", "list, show, search, export and delete conversations")
add_sessions = sessions_command.add

SESSION_ID = argument("id", metavar="ID", help="id, or the beginning of it")
ALL = argument("--all", action="store_true", help="the sessions of all users, not only yours")
SOURCE = argument("--source", metavar="NAME", help="only sessions of this front end: cli, api_server, …")


def _open_transcript() -> Transcript | None:
    """Return the transcript, or None if no session is stored."""
    from hermes_agent.sessions import Transcript

    daemon_client.refuse_remote(os.environ, "sessions list and show")
    path = hermes_home() / "state.db"
    return Transcript(path) if path.exists() else None


@contextlib.contextmanager
def _require_transcript() -> Iterator[Transcript]:
    transcript = _open_transcript()
    if transcript is None:
        raise UserError("there are no sessions: nothing was said yet")
    with contextlib.closing(transcript):
        yield transcript


def _principals_of(args: Args) -> frozenset[str] | None:
    """Return the selected principals, or None for all of them."""
    from hermes_agent.sessions import LOCAL, Principals

    return None if args.all else Principals(load(hermes_home()).settings.people).visible_to(LOCAL)


@sessions_command.action(
    "list",
    "list the most recently used sessions",
    argument("-n", "--limit", type=int, default=20, metavar="N", help="number of sessions (default: 20)"),
    SOURCE,
    ALL,
    JSON,
)
def _list_sessions(args: Args) -> int:
    if (door := daemon_client.daemon_socket(os.environ)) is not None and not args.all:
        found = daemon_client.list_sessions(door, args.limit, args.source)
    else:
        transcript = _open_transcript()
        found = transcript.recent(args.limit, source=args.source, of=_principals_of(args)) if transcript else []
    if args.json:
        return print_json([_as_dict(session) for session in found])
    if not found:
        print("No sessions yet.")
    for session in found:
        where = session.source if session.principal in ("local", session.source) else session.principal
        print(
            f"{session.id}  {_format_time(session.updated_at)}  {where:<10}  "
            f"{session.message_count:>4}  {session.title}"
        )
    return EXIT_OK


@sessions_command.action("show", "show the transcript of a session", SESSION_ID, ALL, JSON)
def _show_session(args: Args) -> int:
    if (door := daemon_client.daemon_socket(os.environ)) is not None and not args.all:
        session, messages = daemon_client.load_session(door, args.id)
    else:
        transcript, session = _stored_session(args)
        messages = transcript.messages(session.id)
    if args.json:
        return print_json({**_as_dict(session), "messages": [m.to_dict() for m in messages]})
    print(f"{session.id}  {session.source}  {session.model}")
    for message in messages:
        label = f"tool {message.tool_name}" if message.role == "tool" else message.role
        print(f"\n[{label}]")
        if message.text:
            print(message.text)
        for call in message.tool_calls:
            print(f"-> {call.name} {call.arguments}")
    return EXIT_OK


def _stored_session(args: Args) -> tuple[Transcript, SessionInfo]:
    transcript = _open_transcript()
    if transcript is None:
        raise UserError(f"there is no session {args.id!r}: nothing was said yet")
    return transcript, transcript.find(args.id, of=_principals_of(args))


@sessions_command.action(
    "replay",
    "run the turns of a session again, offline, and compare each request with the one that was sent",
    SESSION_ID,
    ALL,
    JSON,
    description="Runs the turns of a session again over its stored answers and results. No model is asked and no"
    " tool runs. The exit status is 1 when a request is not the same, byte for byte; one that a plugin changed before"
    " it was sent is said to be, and the same but for that.",
)
def _replay(args: Args) -> int:
    import asyncio

    from hermes_agent.agent.replay import replay_session

    transcript, session = _stored_session(args)
    with activity("running the session again"):
        turns = asyncio.run(replay_session(transcript, session.id))
    if args.json:
        fields = ("turn_id", "requests", "differing", "unknown", "problem")
        changed = [{"changed": {str(number): plugins for number, plugins in t.changed}} for t in turns]
        print_json([{name: getattr(t, name) for name in fields} | c for t, c in zip(turns, changed, strict=True)])
    for turn in () if args.json else turns:
        print(f"{turn.turn_id}  {turn.requests} request(s)  {turn}")
    if not turns and not args.json:
        print("No turn of this session is in the journal.")
    return int(any(t.differing for t in turns))


@sessions_command.action(
    "search",
    "search the messages of all your sessions",
    argument("words", metavar="WORD", nargs="+", help="words to find; quotes for a phrase, OR between alternatives"),
    argument("-n", "--limit", type=int, default=20, metavar="N", help="number of messages (default: 20)"),
    argument("--role", action="append", default=[], choices=("user", "assistant", "tool")),
    SOURCE,
    argument("--sort", choices=("relevance", "newest", "oldest"), default="relevance"),
    ALL,
    JSON,
)
def _search(args: Args) -> int:
    words = " ".join(f'"{word}"' if " " in word else word for word in args.words)
    sources = [args.source] if args.source else ()
    with _require_transcript() as transcript, activity("searching the messages"):
        hits = transcript.search(
            words, of=_principals_of(args), roles=args.role, sources=sources, sort=args.sort, limit=args.limit
        )
    if args.json:
        return print_json([hit._asdict() for hit in hits])
    for hit in hits:
        text = " ".join(hit.snippet.split())
        print(f"{hit.session_id}  {_format_time(hit.timestamp)}  {hit.role:<9}  {text}")
    if not hits:
        print("Nothing was found.")
    return EXIT_OK


@sessions_command.action(
    "export",
    "write sessions to a file, or to standard output",
    argument("id", metavar="ID", nargs="?", default="", help="the session; without it, all of them"),
    argument("-o", "--output", metavar="FILE", default="-", help="file to write, readable by you alone"),
    argument("--format", choices=("jsonl", "markdown"), default="jsonl"),
    ALL,
)
def _export(args: Args) -> int:
    of, write = _principals_of(args), _markdown if args.format == "markdown" else _jsonl
    with _require_transcript() as transcript:
        sessions = [transcript.find(args.id, of=of)] if args.id else transcript.recent(-1, of=of)
        pieces = (piece for session in sessions for piece in write(transcript, session))
        if args.output == "-":
            sys.stdout.writelines(pieces)
            if not sessions:
                print("There is no session to export.", file=sys.stderr)
            return EXIT_OK
        with (
            activity(f"writing {len(sessions)} session(s)"),
            open(args.output, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file,
        ):
            file.writelines(pieces)
    print(f"{len(sessions)} session(s) in {args.output}")
    return EXIT_OK


def _jsonl(transcript: Transcript, session: SessionInfo) -> Iterator[str]:
    body = {**_as_dict(session), "system_prompt": transcript.system_prompt(session.id)}
    messages = [m.to_dict() for m in transcript.messages(session.id)]
    yield json.dumps({**body, "messages": messages}, ensure_ascii=False) + "\n"


def _markdown(transcript: Transcript, session: SessionInfo) -> Iterator[str]:
    about = f"{session.id}, {_format_time(session.started_at)}, {session.source}, {session.model}"
    yield f"# {session.title or session.id}\n\n{about}\n"
    for message in transcript.messages(session.id):
        name = f"tool {message.tool_name}" if message.role == "tool" else message.role
        calls = "".join(f"\n`{call.name} {call.arguments}`\n" for call in message.tool_calls)
        yield f"\n## {name}\n\n{message.text}\n{calls}"
    yield "\n"


@sessions_command.action(
    "rename", "give a session a title", SESSION_ID, argument("title", metavar="TITLE", nargs="+"), ALL
)
def _rename(args: Args) -> None:
    title = " ".join(" ".join(args.title).split())
    with _require_transcript() as transcript:
        session = transcript.find(args.id, of=_principals_of(args))
        transcript.set_title(session.id, title)
    print(f"{session.id}: {title}")


@sessions_command.action(
    "delete",
    "delete a session with its messages",
    argument("id", metavar="ID", nargs="+", help="id, or the beginning of it"),
    YES,
    ALL,
)
def _delete(args: Args) -> int:
    of = _principals_of(args)
    with _require_transcript() as transcript:
        return _delete_confirmed(transcript, [transcript.find(prefix, of=of) for prefix in args.id], sure=args.yes)


@sessions_command.action(
    "prune",
    "delete sessions that were not used for a time",
    argument("--older-than", type=float, required=True, metavar="DAYS", help="delete sessions not used for DAYS days"),
    SOURCE,
    YES,
    ALL,
)
def _prune_sessions(args: Args) -> int:
    before = time.time() - args.older_than * DAY_S
    with _require_transcript() as transcript:
        old = [s for s in transcript.recent(-1, source=args.source, of=_principals_of(args)) if s.updated_at < before]
        if old:
            return _delete_confirmed(transcript, old, sure=args.yes)
    print("There are none.")
    return EXIT_OK


def _delete_confirmed(transcript: Transcript, sessions: list[SessionInfo], *, sure: bool) -> int:
    for session in sessions:
        print(f"{session.id}  {_format_time(session.updated_at)}  {session.message_count:>4}  {session.title}")
    if not sure:
        if not sys.stdin.isatty():
            raise UserError(
                "nothing was deleted: there is no terminal for the confirmation", hint="Add --yes to delete without it."
            )
        if input(f"Delete {len(sessions)} session(s) with all of their messages? [y/N] ").strip().lower() != "y":
            print("Nothing was deleted.")
            return EXIT_FAILED
    for session in sessions:
        transcript.delete(session.id)
    print(f"{len(sessions)} session(s) deleted.")
    return EXIT_OK


def _format_time(stamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))


def _as_dict(session: SessionInfo) -> dict[str, object]:
    return {name: getattr(session, name) for name in session.__slots__}


CHECKPOINT_ID = argument(
    "id", metavar="NUMBER|ID", help="number of `hermes rollback list` in this folder, or id of any folder"
)
FILES = argument("files", metavar="FILE", nargs="*", help="only these files or folders")

rollback_command = CliSubcommand("rollback", "restore files as they were before the agent changed them")
add_rollback = rollback_command.add


def _checkpoints() -> Checkpoints:
    from hermes_agent.workspace.checkpoints import Checkpoints

    return Checkpoints.from_config(hermes_home(), load(hermes_home()).settings, os.environ)


@rollback_command.default(all=False, json=False)
@rollback_command.action(
    "list",
    "list the checkpoints of this folder (also without an action)",
    argument("--all", action="store_true", help="the checkpoints of every folder"),
    JSON,
)
def _list_checkpoints(args: Args) -> int:
    from hermes_agent.workspace.checkpoints import CHECKPOINTS_OFF, checkpoint_rows

    checkpoints = _checkpoints()
    found = checkpoints.all("" if args.all else _current_folder())
    if args.json:
        print_json([one._asdict() for one in found])
    elif found:
        print("\n".join(checkpoint_rows(found, folders=args.all, numbers=not args.all)))
    else:
        print("there are no checkpoints" + ("" if args.all else " of this folder (--all lists the others')"))
    if not checkpoints.limits.enabled:
        print(CHECKPOINTS_OFF, file=sys.stderr)
    return 0


def _current_folder() -> str:
    return os.path.realpath(os.curdir)


def _resolve_places(names: list[str]) -> list[str]:
    from hermes_agent.workspace.checkpoints import checkpoint_path

    return [checkpoint_path(name, _current_folder()) for name in names]


@rollback_command.action("diff", "show what changed since a checkpoint", CHECKPOINT_ID, FILES)
def _diff_checkpoint(args: Args) -> int:
    checkpoints = _checkpoints()
    _show_difference(checkpoints, checkpoints.choose(args.id, _current_folder()), _resolve_places(args.files))
    return 0


def _show_difference(checkpoints: Checkpoints, chosen: Checkpoint, files: list[str]) -> None:
    from hermes_agent.core.text import printable

    for line in checkpoints.diff(chosen, files).splitlines():
        print(printable(line) if sys.stdout.isatty() else line)


@rollback_command.action("restore", "restore files, after a checkpoint of the present ones", CHECKPOINT_ID, FILES, YES)
def _restore_checkpoint(args: Args) -> int:
    from hermes_agent.workspace.checkpoints import restore_text

    checkpoints, files = _checkpoints(), _resolve_places(args.files)
    chosen = checkpoints.choose(args.id, _current_folder())  # once: each new checkpoint changes the numbers
    if not args.yes:
        if not sys.stdin.isatty():
            raise UserError(
                "no file was restored: there is no terminal for the confirmation",
                hint="Add --yes to restore without it.",
            )
        _show_difference(checkpoints, chosen, files)
        if input("Restore these files? [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was changed.")
            return 1
    print(restore_text([checkpoints.restore(chosen, files)]))
    return 0


@rollback_command.action("prune", "remove checkpoints above the limits of `checkpoints` in the config")
def _prune_checkpoints(args: Args) -> int:
    print(f"{_checkpoints().prune()} checkpoints removed")
    return 0
