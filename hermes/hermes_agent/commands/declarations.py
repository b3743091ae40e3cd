"""Declarations of the slash commands that front ends run themselves.

Each front end binds its handlers to them (`CommandTable.bind`). Commands with one handler for all front ends are
declared where their handler is.
"""

from __future__ import annotations

from functools import partial

from hermes_agent.contracts.command import BY_FRONT_END, Confirmation, SlashCommand, Where
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.lazy_types import LazyNamedTuple


def _in(*where: Where) -> frozenset[Where]:
    return frozenset(where)


_during_turn = partial(SlashCommand, handler=BY_FRONT_END)
_between_turns = partial(SlashCommand, handler=BY_FRONT_END, during_turn=False)

TERMINAL = _in("terminal")
CHAT = _in("chat")
BOTH = _in("terminal", "chat")

DECLARATIONS: tuple[SlashCommand, ...] = (
    # in several front ends
    _during_turn(
        "help",
        description="List the commands",
        args_hint="[all|COMMAND]",
        aliases=("commands", "start"),
        where=_in("terminal", "chat", "socket"),
        right="always",
    ),
    _during_turn(
        "new",
        description="Start a new session",
        aliases=("reset", "clear"),
        where=_in("terminal", "chat", "socket"),
        waits_in=TERMINAL,
        confirm=Confirmation("Start a new session?", "This ends the present session and stops its turn."),
    ),
    _during_turn(
        "stop",
        description="Stop the running turn; `all` also stops background work",
        args_hint="[all]",
        where=BOTH,
        right="always",
        values=("all",),
    ),
    _during_turn("steer", description="Add a message to the running turn", args_hint="TEXT", where=BOTH, waits_in=CHAT),
    _during_turn(
        "queue",
        description="Send a message after the running turn",
        args_hint="TEXT",
        aliases=("q",),
        where=BOTH,
        waits_in=CHAT,
    ),
    _between_turns(
        "model", description="Show or change the model", args_hint="[NAME]", where=BOTH, right="known", values="models"
    ),
    _between_turns("title", description="Show or set the title of the session", args_hint="[TEXT]", where=BOTH),
    _between_turns(
        "resume",
        description="List your sessions, or resume one",
        args_hint="[ID or TITLE]",
        where=BOTH,
        values="sessions",
    ),
    _between_turns("retry", description="Ask the last question again", where=BOTH),
    _during_turn(
        "quit", description="Leave; so do exit and Ctrl-D", aliases=("exit",), where=_in("terminal", "socket")
    ),
    # in the console
    _during_turn(
        "keys",
        description="List the keys, or use those of emacs or vi",
        args_hint="[emacs|vi]",
        where=TERMINAL,
        values=("emacs", "vi"),
    ),
    _between_turns("clear", description="Clear the screen and start a new session", where=TERMINAL),
    _between_turns(
        "sessions",
        description="Search your sessions and resume one",
        args_hint="[ID or TITLE]",
        where=TERMINAL,
        values="sessions",
    ),
    _between_turns(
        "branch",
        description="Continue in a copy of this session",
        args_hint="[TITLE]",
        aliases=("fork",),
        where=TERMINAL,
    ),
    _between_turns("edit", description="Take the last question back into the input", where=TERMINAL),
    _during_turn("cost", description="Show what this session and today cost, by model", where=TERMINAL),
    _during_turn(
        "copy",
        description="Copy the last answer to the clipboard, or a code block of it",
        args_hint="[code [NUMBER]]",
        where=TERMINAL,
        values=("code",),
    ),
    _between_turns("save", description="Write this session into a Markdown file", args_hint="[FILE]", where=TERMINAL),
    _between_turns(
        "export",
        description="Write this session into a file",
        args_hint="[markdown|html|json] [FILE]",
        where=TERMINAL,
        values=("markdown", "html", "json"),
    ),
    _during_turn(
        "theme",
        description="Show the colour themes, or use one",
        args_hint="[NAME]",
        aliases=("skin",),
        where=TERMINAL,
        values="themes",
    ),
    _during_turn("verbose", description="Show tool results and reasoning, or hide them", where=TERMINAL),
    # in chats
    _during_turn("status", description="Show session, model and running turn", where=CHAT, right="always"),
    _during_turn(
        "whoami", description="Show your identity and the commands that you may run", where=CHAT, right="always"
    ),
    _during_turn(
        "approve",
        description="Approve the pending request",
        args_hint="[CODE|all] [session|always]",
        where=CHAT,
        right="known",
    ),
    _during_turn(
        "deny", description="Refuse the pending request", args_hint="[all] [REASON]", where=CHAT, right="always"
    ),
    _during_turn(
        "background",
        description="Run a task in a session of its own",
        args_hint="TEXT",
        aliases=("bg", "btw"),
        where=CHAT,
    ),
    _during_turn(
        "sethome",
        description="Make this chat the target of messages without one",
        aliases=("set-home",),
        where=CHAT,
        right="known",
    ),
    _during_turn("restart", description="Restart the agent; interrupted turns resume", where=CHAT, right="known"),
)


class NoDeps(LazyNamedTuple):
    """Services of the declarations: none."""


def register(ctx: Registrar, deps: NoDeps) -> None:
    """Register the declarations."""
    for command in DECLARATIONS:
        ctx.register_slash_command(command)


def all_names(name: str) -> tuple[str, ...]:
    """Return the name and the aliases of a declared command."""
    return next((command.name, *command.aliases) for command in DECLARATIONS if command.name == name)
