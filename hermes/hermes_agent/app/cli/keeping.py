"""`hermes sessions search|export|rename|delete|prune`: finding what was said, taking it along, and letting it go."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.sessions import SessionInfo, Transcript

__all__ = ["add"]

Whose = Callable[[argparse.Namespace], frozenset[str] | None]
Open = Callable[[], "Transcript | None"]
DAY_S = 86_400


def add(actions: argparse._SubParsersAction[argparse.ArgumentParser], open_transcript: Open, whose: Whose) -> None:
    """Declare the actions.

    Args:
        open_transcript: returns None when nothing was ever said.
        whose: whose sessions are meant; None: everybody's.
    """

    def action(
        name: str, run: Callable[[Transcript, argparse.Namespace, frozenset[str] | None], int], about: str
    ) -> Any:
        parser = actions.add_parser(name, help=about)
        parser.add_argument("--all", action="store_true", help="those of everybody, not only your own")
        parser.set_defaults(run=lambda args: _run(args, run, open_transcript, whose))
        return parser

    search = action("search", _search, "find messages by their words")
    search.add_argument("words", metavar="WORD", nargs="+", help="quotes for a phrase, OR for either")
    search.add_argument("-n", "--limit", type=int, default=20, metavar="N", help="how many messages (20)")
    search.add_argument("--role", action="append", default=[], choices=("user", "assistant", "tool"))
    search.add_argument("--source", metavar="NAME", help="only sessions of this front door")
    search.add_argument("--sort", choices=("relevance", "newest", "oldest"), default="relevance")
    search.add_argument("--json", action="store_true", help="print JSON")

    export = action("export", _export, "write sessions to a file, or to standard output")
    export.add_argument("id", metavar="ID", nargs="?", default="", help="one session; without it all of them")
    export.add_argument("-o", "--output", metavar="FILE", default="-", help="only you may read it")
    export.add_argument("--format", choices=("jsonl", "markdown"), default="jsonl")

    rename = action("rename", _rename, "give a session a title")
    rename.add_argument("id", metavar="ID", help="the id, or its beginning")
    rename.add_argument("title", metavar="TITLE", nargs="+")

    delete = action("delete", _delete, "delete a session and what was said in it")
    delete.add_argument("id", metavar="ID", nargs="+", help="the id, or its beginning")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")

    prune = action("prune", _prune, "delete the sessions that were not used for long")
    prune.add_argument("--older-than", type=float, required=True, metavar="DAYS", help="last used before so many days")
    prune.add_argument("--source", metavar="NAME", help="only those of this front door")
    prune.add_argument("-y", "--yes", action="store_true", help="do not ask")


def _run(args: argparse.Namespace, run: Any, open_transcript: Open, whose: Whose) -> int:
    from hermes_agent.core.errors import UserError

    transcript = open_transcript()
    if transcript is None:
        raise UserError("there are no sessions: nothing was said yet")
    try:
        return int(run(transcript, args, whose(args)))
    finally:
        transcript.close()


def _search(transcript: Transcript, args: argparse.Namespace, of: frozenset[str] | None) -> int:
    words = " ".join(f'"{word}"' if " " in word else word for word in args.words)
    hits = transcript.search(
        words, of=of, roles=args.role, sources=[args.source] if args.source else (), sort=args.sort, limit=args.limit
    )
    if args.json:
        print(json.dumps([hit._asdict() for hit in hits], indent=2, ensure_ascii=False))
        return 0
    for hit in hits:
        text = " ".join(hit.snippet.split())
        print(f"{hit.session_id}  {_day(hit.timestamp)}  {hit.role:<9}  {text}")
    if not hits:
        print("Nothing was found.")
    return 0


def _export(transcript: Transcript, args: argparse.Namespace, of: frozenset[str] | None) -> int:
    import os

    sessions = [transcript.find(args.id, of=of)] if args.id else transcript.recent(-1, of=of)
    write = _markdown if args.format == "markdown" else _jsonl
    pieces = (piece for session in sessions for piece in write(transcript, session))
    if args.output == "-":
        sys.stdout.writelines(pieces)
        return 0
    with open(args.output, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.writelines(pieces)
    print(f"{len(sessions)} session(s) in {args.output}")
    return 0


def _jsonl(transcript: Transcript, session: SessionInfo) -> Iterator[str]:
    head = {name: getattr(session, name) for name in session.__slots__}
    body = {**head, "system_prompt": transcript.system_prompt(session.id)}
    messages = [m.to_dict() for m in transcript.messages(session.id)]
    yield json.dumps({**body, "messages": messages}, ensure_ascii=False) + "\n"


def _markdown(transcript: Transcript, session: SessionInfo) -> Iterator[str]:
    about = f"{session.id}, {_day(session.started_at)}, {session.source}, {session.model}"
    yield f"# {session.title or session.id}\n\n{about}\n"
    for message in transcript.messages(session.id):
        name = f"tool {message.tool_name}" if message.role == "tool" else message.role
        calls = "".join(f"\n`{call.name} {call.arguments}`\n" for call in message.tool_calls)
        yield f"\n## {name}\n\n{message.text}\n{calls}"
    yield "\n"


def _rename(transcript: Transcript, args: argparse.Namespace, of: frozenset[str] | None) -> int:
    session = transcript.find(args.id, of=of)
    title = " ".join(" ".join(args.title).split())
    transcript.set_title(session.id, title)
    print(f"{session.id}: {title}")
    return 0


def _delete(transcript: Transcript, args: argparse.Namespace, of: frozenset[str] | None) -> int:
    return _let_go(transcript, [transcript.find(prefix, of=of) for prefix in args.id], args.yes)


def _prune(transcript: Transcript, args: argparse.Namespace, of: frozenset[str] | None) -> int:
    before = time.time() - args.older_than * DAY_S
    old = [s for s in transcript.recent(-1, source=args.source, of=of) if s.updated_at < before]
    if not old:
        print("There are none.")
        return 0
    return _let_go(transcript, old, args.yes)


def _let_go(transcript: Transcript, sessions: list[SessionInfo], sure: bool) -> int:
    for session in sessions:
        print(f"{session.id}  {_day(session.updated_at)}  {session.message_count:>4}  {session.title}")
    if not sure:
        from hermes_agent.core.errors import UserError

        if not sys.stdin.isatty():
            raise UserError("nothing was deleted: nobody is there to ask", hint="--yes deletes without asking.")
        if input(f"Delete {len(sessions)} session(s) with all that was said in them? [y/N] ").strip().lower() != "y":
            print("Nothing was deleted.")
            return 1
    for session in sessions:
        transcript.delete(session.id)
    print(f"{len(sessions)} session(s) deleted.")
    return 0


def _day(stamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))
