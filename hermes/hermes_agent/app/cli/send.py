"""`hermes send`: a text to a chat, through the outbox; it waits there when no daemon runs."""

from __future__ import annotations

import argparse
import sys

__all__ = ["add"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "send",
        help="send a text to a chat",
        description="Send a text to a chat. It is stored first: when no daemon runs, the next one sends it.",
    )
    parser.add_argument(
        "--to", required=True, metavar="PLATFORM[:CHAT]", help="where to; without a chat, the platform's home channel"
    )
    parser.add_argument("--thread", default="", metavar="ID", help="the thread in that chat")
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
    platform, _, chat = args.to.partition(":")
    home = hermes_home()
    make_home(home)
    if holder(home) is None:
        return _store(args, platform, chat, text)
    from hermes_agent.service.control import ask

    question = {"op": "send", "platform": platform, "chat": chat, "thread": args.thread, "text": text}
    answer = ask(home, {**question, "wait_s": args.wait}, timeout_s=args.wait + 30)
    print(f"{answer['state']}: {answer['reply']}")
    return 0 if answer["state"] == "sent" or (answer["state"] == "pending" and not args.wait) else 1


def _store(args: argparse.Namespace, platform: str, chat: str, text: str) -> int:
    import time

    from hermes_agent.config import hermes_home
    from hermes_agent.core.errors import UserError
    from hermes_agent.delivery import Mailbox
    from hermes_agent.gateway.sends import plain_reply

    if not chat:
        raise UserError(
            "no daemon runs, and it alone knows the home channel", hint=f"Say which chat: `--to {platform}:CHAT`."
        )
    mailbox = Mailbox(hermes_home() / "state.db")
    try:
        reply = mailbox.enqueue(plain_reply(platform, chat, args.thread, text), time.time())
    finally:
        mailbox.close()
    print(f"stored: {reply.id}; no daemon runs, the next one sends it")
    return 1 if args.wait else 0
