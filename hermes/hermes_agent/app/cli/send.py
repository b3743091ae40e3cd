"""`hermes send`: a text to a chat, through the outbox; it waits there when no daemon runs."""

from __future__ import annotations

import argparse
import os
import sys

__all__ = ["add"]

UNASKED_LIMIT = 2000
"""Characters of one message where the platform is not there to be asked."""


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "send",
        help="send a text to a chat",
        description="Send a text to a chat. It is stored first: when no daemon runs, the next one sends it.",
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="PLATFORM[:CHAT[:THREAD]]",
        help="where to; without a chat, the platform's home channel",
    )
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="wait until the platform has it (exit status 1: not)"
    )
    parser.add_argument("text", nargs="*", metavar="TEXT", help="what to say; without it, or as -, standard input")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from hermes_agent.config import hermes_home, make_home
    from hermes_agent.core.errors import UserError
    from hermes_agent.service.lock import holder

    text = sys.stdin.read() if args.text in ([], ["-"]) else " ".join(args.text)
    if not text.strip():
        raise UserError("there is nothing to send", hint="Give a text, or pipe one in.")
    from hermes_agent.app.daemon_client import daemon_door
    from hermes_agent.service.control import ask, ask_at

    question = {"op": "send", "to": args.to, "text": text, "wait_s": args.wait}
    if (door := daemon_door(os.environ)) is not None:
        answer = ask_at(door, question, timeout_s=args.wait + 30)
    else:
        home = hermes_home()
        make_home(home)
        if holder(home) is None:
            return _store(args, text)
        answer = ask(home, question, timeout_s=args.wait + 30)
    print(f"{answer['state']}: {answer['reply']}")
    return 0 if answer["state"] == "sent" or (answer["state"] == "pending" and not args.wait) else 1


def _store(args: argparse.Namespace, text: str) -> int:
    import time

    from hermes_agent.config import hermes_home
    from hermes_agent.contracts.platform.chunks import split_message
    from hermes_agent.core.errors import UserError
    from hermes_agent.delivery import Mailbox, Reply
    from hermes_agent.gateway.addressing import written_target

    platform, _, rest = args.to.partition(":")
    if not rest:
        raise UserError(
            "no daemon runs, and it alone knows the home channel", hint=f"Say which chat: `--to {platform}:CHAT`."
        )
    parts = tuple({"text": one} for one in split_message(text, UNASKED_LIMIT, None))
    mailbox = Mailbox(hermes_home() / "state.db")
    try:
        reply = mailbox.enqueue(Reply(written_target(platform, rest), parts), time.time())
    finally:
        mailbox.close()
    print(f"stored: {reply.id}; no daemon runs, the next one sends it")
    return 1 if args.wait else 0
