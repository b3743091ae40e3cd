"""`hermes send`: a text to a chat, through the outbox; it waits there when no daemon runs."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from hermes_agent.app.cli.command import Args, CliSubcommand, argument, ensure_home
from hermes_agent.app.daemon_client import ask_daemon, daemon_socket
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

__all__ = ["add_send"]

DEFAULT_LENGTH_LIMIT = 2000
"""Characters of one message where the platform is not there to be asked."""

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
        help="where to; without a chat, the platform's home channel",
    ),
    argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="wait until the platform has it (exit status 1: not)"
    ),
    argument("text", nargs="*", metavar="TEXT", help="what to say; without it, or as -, standard input"),
)
def _send_text(args: Args) -> int:
    from hermes_agent.service.lock import lock_holder

    text = sys.stdin.read() if args.text in ([], ["-"]) else " ".join(args.text)
    if not text.strip():
        raise UserError("there is nothing to send", hint="Give a text, or pipe one in.")
    home = ensure_home() if daemon_socket(os.environ) is None else Path()
    if daemon_socket(os.environ) is None and lock_holder(home) is None:
        return _store_text(args, text, home)
    question = {"op": "send", "to": args.to, "text": text, "wait_s": args.wait}
    answer = ask_daemon(home, question, timeout_s=args.wait + 30)
    print(f"{answer['state']}: {answer['reply']}")
    sent = answer["state"] == "sent" or (answer["state"] == "pending" and not args.wait)
    return EXIT_OK if sent else EXIT_FAILED


def _store_text(args: Args, text: str, home: Path) -> int:
    from hermes_agent.contracts.platform.chunks import split_message
    from hermes_agent.delivery import Mailbox, OutboundReply
    from hermes_agent.gateway.addressing import parse_chat_target

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
