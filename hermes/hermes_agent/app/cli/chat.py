"""`hermes chat`: a chat, or one question with options for scripts."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from hermes_agent.app.cli.command import ACCEPT_HOOKS, Args, CliSubcommand, argument, exclusive
from hermes_agent.core.errors import EXIT_USAGE, UserError

chat_command = CliSubcommand(
    "chat",
    "open a chat, or answer one question",
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="""\
examples:
  hermes chat                                      open a chat, as `hermes` does
  hermes chat -q "what is in this folder?"         answer one question on stdout
  git diff | hermes chat -q - --quiet              read the question from standard input
  hermes chat -q "what is this?" --image cat.png   send an image with it
  hermes chat -q "run the tests" --approve --jsonl write events for a program

The format of --json and --jsonl: docs/reference/events.md.
The exit status is 0 when the question is answered, 1 when it is not or only partly answered, 2 for wrong usage.
""",
)
add_chat = chat_command.add


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number


@chat_command.default(
    argument("-q", "--query", metavar="QUESTION", help="answer one question on stdout; `-` reads it from stdin"),
    argument("-f", "--first", metavar="QUESTION", help="open a chat and ask this first"),
    argument("-c", "--continue", dest="continue_last", action="store_true", help="resume the last session"),
    argument("-r", "--resume", metavar="ID", help="resume this session (see `hermes sessions list`)"),
    argument("-m", "--model", metavar="NAME", help="use this model in place of the configured one"),
    argument("--toolsets", metavar="NAMES", type=_names, default=[], help="show the model these toolsets only"),
    argument("--skills", metavar="NAMES", type=_names, default=[], help="use these skills for the question"),
    argument("--image", metavar="FILE", action="append", default=[], help="send an image; repeatable"),
    argument("--cwd", metavar="DIR", help="work in this directory"),
    argument("--max-turns", metavar="N", type=_count, help="model requests that a turn may make"),
    ACCEPT_HOOKS,
    argument("--approve", action="store_true", help="allow what asks, except what the user must decide each time"),
    exclusive(
        argument("--json", action="store_true", help="write one JSON object at the end"),
        argument("--jsonl", action="store_true", help="write a JSON object for each event"),
    ),
    exclusive(
        argument("--quiet", action="store_true", help="write neither tool calls nor notices to stderr"),
        argument("-v", "--verbose", action="store_true", help="write tool results to stderr, too"),
    ),
)
def _chat(args: Args) -> int:
    from hermes_agent.app import daemon_client

    if (door := daemon_client.daemon_socket(os.environ)) is not None:
        return _ask_daemon(door, args)
    from hermes_agent.app import conversation  # asyncio, the model and the plugins

    return conversation.run(
        conversation.ConversationRequest(
            args.query,
            args.first,
            args.continue_last,
            args.resume,
            args.model,
            args.toolsets,
            args.skills,
            [Path(name).expanduser().resolve() for name in args.image],
            None if args.cwd is None else Path(args.cwd).expanduser(),
            args.max_turns,
            "json" if args.json else "jsonl" if args.jsonl else "text",
            args.approve,
            args.quiet,
            args.verbose,
        )
    )


def _ask_daemon(door: Path, args: Args) -> int:
    """Ask the machine's daemon, which has none of the options that change how it works."""
    from hermes_agent.app import daemon_client

    names = (
        "accept_hooks",
        "toolsets",
        "skills",
        "image",
        "cwd",
        "max_turns",
        "approve",
        "json",
        "jsonl",
        "quiet",
        "verbose",
    )
    given = next((name for name in names if getattr(args, name)), None)
    if given is not None:
        raise UserError(
            f"the daemon at {door} has no option --{given.replace('_', '-')}",
            hint="Leave it out, or set HERMES_HOME to work in a home of your own.",
            exit_status=EXIT_USAGE,
        )
    args.oneshot = args.query
    return daemon_client.converse(door, args)
