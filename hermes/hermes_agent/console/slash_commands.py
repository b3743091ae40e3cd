"""The slash commands of the console."""

from __future__ import annotations

import shlex
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from hermes_agent.agent import Agent
from hermes_agent.agent.conversation import Conversation
from hermes_agent.agent.personalities import known_personalities
from hermes_agent.agent.session_commands import find_session, set_title
from hermes_agent.commands import CommandTable, HelpRow
from hermes_agent.console.clipboard import copy_by_program, copy_sequence
from hermes_agent.console.dependencies import ConsoleDeps
from hermes_agent.console.markdown_blocks import CodeBlock, code_blocks
from hermes_agent.console.menus import Menu, MenuAnswer, MenuOption
from hermes_agent.console.overview import context_lines, cost_text
from hermes_agent.console.screen import Screen
from hermes_agent.console.session_export import export_session, export_target
from hermes_agent.console.skins import load_skins
from hermes_agent.console.styled import Line, Piece, Theme, line, printable, width_of, wrap
from hermes_agent.console.tool_lines import duration
from hermes_agent.console.transcript_view import TranscriptView
from hermes_agent.contracts.command import CommandHandler
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.models.model_catalog import ModelInfo, ModelsUnavailable
from hermes_agent.models.request_options import describe_model, split_model_text
from hermes_agent.sessions import LOCAL, SessionInfo
from hermes_agent.system.files import write_atomic

LISTED_SESSIONS = 200
MODES = ("emacs", "vi")


class KeyHelp(LazyNamedTuple):
    """A row of `/keys`."""

    keys: str
    does: str


KEYS = (
    KeyHelp("Enter", "send the message, or choose in a menu; without a text: give queued messages to the turn"),
    KeyHelp("Alt-Enter, Shift-Enter, Ctrl-J", "begin a new line; so does \\ at the end of a line"),
    KeyHelp("Tab", "complete a command, an argument, @file or @session"),
    KeyHelp("Up, Down", "move in the text, then to other messages; Up takes back a queued message"),
    KeyHelp("Ctrl-R", "search the messages of all sessions"),
    KeyHelp("Ctrl-X Ctrl-E", "write the message in $EDITOR (vi: v)"),
    KeyHelp("Ctrl-C", "stop the turn; clear the input; twice: leave"),
    KeyHelp("Ctrl-D", "leave, if the input is empty"),
    KeyHelp("Ctrl-L", "clear the screen"),
    KeyHelp("Ctrl-O", "show tool results and reasoning, also those of the last turn, or hide them"),
    KeyHelp("Ctrl-V", "paste the image of the clipboard, or its text"),
    KeyHelp("Ctrl-Z", "suspend"),
    KeyHelp("Esc", "close a menu"),
)


class CommandedConsole(Protocol):
    """The parts of the console that its commands use."""

    agent: Agent
    conversation: Conversation | None
    screen: Screen
    view: TranscriptView
    model: str | None
    skill_rows: list[HelpRow]

    @property
    def deps(self) -> ConsoleDeps: ...
    async def open(self, session_id: str | None, after: str = "") -> Conversation: ...
    async def run_turn(self, content: Any) -> int: ...
    async def send(self, text: str) -> int: ...
    async def load_skills(self) -> None: ...
    async def refresh_status(self) -> None: ...
    def help_rows(self) -> list[HelpRow]: ...
    def as_typed(self, sent: str) -> str: ...
    def fill_input(self, text: str) -> None: ...
    def stop_turn(self) -> bool: ...
    def steer(self, text: str) -> bool: ...
    def enqueue(self, text: str) -> None: ...
    def leave(self, status: int = 0) -> None: ...


class ConsoleCommands:
    """Handlers of the commands that the console runs itself."""

    def __init__(self, console: CommandedConsole, commands: CommandTable) -> None:
        self._console, self._table = console, commands

    def bind(self) -> None:
        """Bind the handlers to the declared commands."""
        handlers: dict[str, CommandHandler] = {
            "help": self._help,
            "keys": self._keys,
            "new": self._new,
            "clear": self._clear,
            "model": self._use_model,
            "resume": self._resume,
            "sessions": self._resume,
            "branch": self._branch,
            "title": self._title,
            "retry": self._retry,
            "edit": self._edit,
            "context": self._context,
            "cost": self._cost,
            "copy": self._copy,
            "save": self._export,
            "export": self._export,
            "theme": self._theme,
            "verbose": self._verbose,
            "stop": self._stop,
            "steer": self._steer,
            "queue": self._queue,
            "quit": self._quit,
        }
        self._table.bind("terminal", handlers)

    @property
    def _conversation(self) -> Conversation:
        assert self._console.conversation is not None
        return self._console.conversation

    async def _choose(self, menu: Menu) -> MenuAnswer | None:
        self._console.view.waits_for = "Waiting for your choice"
        try:
            return await self._console.screen.choose(menu)
        finally:
            self._console.view.waits_for = ""

    # -- help --------------------------------------------------------------------------------------------------

    async def _help(self, arguments: str) -> str:
        rows = sorted(self._console.help_rows())
        wanted = arguments.strip().removeprefix("/").lower()
        if wanted not in ("", "all"):
            found = self._table.find(wanted, "terminal")
            rows = [row for row in rows if row.name == (wanted if found is None else found.name)]
            if not rows:
                raise UserError(f"there is no command /{wanted}", hint="/help lists the commands.")
        names = [f"/{row.name} {row.hint}".rstrip() for row in rows]
        width = self._console.screen.width
        column = min(max(map(width_of, names), default=0), max(width // 2 - 4, 14))
        lines: list[Line] = []
        for name, row in zip(names, rows, strict=True):
            first = line(f"  {name:<{column}}  ", "code")
            if width_of(name) > column:
                lines.append(line(f"  {name}", "code"))
                first = line(" " * (column + 4))
            lines += wrap([Piece("", printable(row.description))], width, first, line(" " * (column + 4)))
        more = "!COMMAND runs a command of yours, #NOTE adds a note, @ names a file or session."
        if len(rows) > 1:
            lines += wrap([Piece("dim", more)], width)
        self._console.view.lines(lines)
        return ""

    async def _keys(self, arguments: str) -> str:
        screen = self._console.screen
        if arguments in MODES:
            self._console.deps.save_setting("display.editing_mode", arguments)
            screen.set_editing_mode(arguments)
            return f"Keys of {arguments}."
        if arguments:
            raise UserError(f"there are no keys named {arguments!r}", hint="/keys emacs, /keys vi")
        if screen.width < 60:
            return "\n".join(f"{row.keys}\n  {row.does}" for row in KEYS)
        column = max(width_of(row.keys) for row in KEYS) + 4
        lines: list[Line] = []
        for row in KEYS:
            lines += wrap([Piece("", row.does)], screen.width, line(f"{f'  {row.keys}':<{column}}", "code"))
        self._console.view.lines(lines)
        return ""

    # -- sessions ----------------------------------------------------------------------------------------------

    async def _new(self, arguments: str) -> str:
        fresh = await self._console.open(None, self._conversation.session_id)
        await fresh.replace(self._conversation)
        self._console.conversation = fresh
        await self._console.refresh_status()
        return f"New session {fresh.session_id}."

    async def _clear(self, arguments: str) -> str:
        self._console.screen.clear()
        return await self._new(arguments)

    async def _resume(self, arguments: str) -> str:
        if not arguments and self._console.screen.is_live:
            arguments = await self._pick_session()
            if not arguments:
                return ""
        chosen = await find_session(self._console.agent, arguments, LOCAL)
        if isinstance(chosen, str):
            return chosen
        if chosen.id == self._conversation.session_id:
            return "This is the current session."
        return await self._switch(chosen.id, chosen.title)

    async def _switch(self, session_id: str, title: str, what: str = "") -> str:
        console = self._console
        fresh = await console.open(session_id)
        await self._conversation.close("resumed_other", successor=session_id)
        console.conversation = fresh
        console.view.note(f"{what or f'Resumed {session_id}'}" + (f": {printable(title)}" if title else "."))
        await console.refresh_status()
        if await console.agent.unfinished_turns(session_id):
            console.view.note("The last turn was interrupted by a crash; it resumes.")
            await console.run_turn(None)
        return ""

    async def _pick_session(self) -> str:
        agent = self._console.agent
        seen = agent.principals.visible_to(LOCAL)
        found: list[SessionInfo] = await agent.call_transcript("recent", LISTED_SESSIONS, of=seen)
        if not found:
            self._console.view.note("There are no sessions yet.")
            return ""
        now = time.time()
        options = [
            MenuOption(
                printable(each.title) or "(no title)",
                each.id,
                details=f"{_age(now - each.updated_at)}, {each.message_count} messages, {each.source}",
            )
            for each in found
        ]
        chosen = await self._choose(Menu([line("Resume a session", "strong")], options, has_search=True))
        return "" if chosen is None else chosen.value

    async def _branch(self, arguments: str) -> str:
        conversation, agent = self._conversation, self._console.agent
        title = await agent.call_transcript("title", conversation.session_id)
        if title is None or not conversation.history:
            return "There is no session yet."
        name = arguments.strip() or f"{title or 'session'} (branch)"
        copy: str = await agent.call_transcript("branch", conversation.session_id, name)
        if agent.provenance is not None:
            await agent.bridge.run(agent.provenance.copy_session, conversation.session_id, copy)
        return await self._switch(copy, name, f"A copy of {conversation.session_id} (/resume goes back)")

    async def _title(self, arguments: str) -> str:
        return await set_title(self._console.agent, self._conversation.session_id, arguments)

    async def _retry(self, arguments: str) -> str:
        text = await self._drop_last()
        if not text:
            return "There is no question to ask again."
        self._console.view.user_message(text)
        await self._console.run_turn(text)
        return ""

    async def _edit(self, arguments: str) -> str:
        text = await self._drop_last()
        if not text:
            return "There is no question to edit."
        self._console.fill_input(self._console.as_typed(text))
        return "The last question and its answer were removed; edit it and send it again."

    async def _drop_last(self) -> str:
        """Remove the last question with its answer, and return its text."""
        conversation, agent = self._conversation, self._console.agent
        async with conversation.between_turns():
            agent.forget_sent(conversation.session_id)
            text: str = await agent.call_transcript("drop_last_turn", conversation.session_id)
            if text:
                await conversation.reload_history()
        return text

    async def _export(self, arguments: str) -> str:
        conversation, agent = self._conversation, self._console.agent
        title = await agent.call_transcript("title", conversation.session_id)
        if title is None:
            return "There is no session yet."
        messages = await agent.call_transcript("messages", conversation.session_id)
        form, path = export_target(arguments, conversation.session_id, self._console.deps.directory)

        def write() -> None:
            text = export_session(messages, form, title=title or "", session_id=conversation.session_id)
            try:
                write_atomic(path, text, mode=0o600)
            except OSError as exc:
                raise UserError(f"{path}: {exc.strerror or exc}", hint="Name another file.") from exc

        await agent.bridge.run(write)
        return f"Written: {path}"

    async def _copy(self, arguments: str) -> str:
        messages = await self._console.agent.call_transcript("messages", self._conversation.session_id)
        answers = (message.text for message in reversed(messages) if message.role == "assistant")
        answer = next((text for text in answers if text.strip()), "")
        if not answer:
            return "There is no answer to copy yet."
        what, text = "the answer", answer
        if arguments.strip():
            what, text = "the code block", await self._pick_code(arguments.split(), code_blocks(answer))
        if not text:
            return ""
        if by := await self._console.agent.bridge.run(copy_by_program, text):
            way = f"by {by}"
        if by in ("", "tmux") and (sequence := copy_sequence(text)) and self._console.screen.write_escape(sequence):
            way = f"{way} and the terminal" if by else "by the terminal, if it knows OSC 52"
        elif not by:
            raise UserError("the text cannot be copied here", hint="/save FILE writes the session into a file.")
        count = text.rstrip("\n").count("\n") + 1
        return f"Copied {what}, {count:,} line{'s' if count != 1 else ''}, {way}."

    async def _pick_code(self, words: list[str], blocks: list[CodeBlock]) -> str:
        """Return the code block that the words of `/copy` name; "" for none. Of several the user picks one."""
        if words[0].lower() != "code" or len(words) > 2 or (len(words) == 2 and not words[1].isdecimal()):
            raise UserError(f"/copy {' '.join(words)}: there is no such text", hint="/copy, /copy code, /copy code 2")
        if not blocks:
            raise UserError("the last answer has no code block", hint="/copy copies all of it.")
        if len(words) == 2:
            number = int(words[1])
            if not 0 < number <= len(blocks):
                raise UserError(f"there is no code block {number}", hint=f"The last answer has {len(blocks)}.")
            return blocks[number - 1].text
        if len(blocks) == 1:
            return blocks[0].text
        options = [
            MenuOption(printable(block.text.strip().partition("\n")[0]) or "(empty)", str(i), details=block.language)
            for i, block in enumerate(blocks)
        ]
        chosen = await self._choose(Menu([line("Copy a code block", "strong")], options))
        return "" if chosen is None else blocks[int(chosen.value)].text

    # -- model -------------------------------------------------------------------------------------------------

    async def _use_model(self, arguments: str) -> str:
        name, options = split_model_text(arguments)
        models = await self._models()
        if not (name or options) and self._console.screen.is_live and models:
            chosen = await self._choose(self._model_menu(models))
            name = "" if chosen is None else chosen.value
        known = [model.id for model in models]
        is_whole = self._conversation.model in known  # a server may have more models than it lists
        if name and is_whole and name not in known:
            near = nearest_name(name, known)
            hint = f"Did you mean {near}?" if near else "/model lists the models."
            raise UserError(f"{self._conversation.provider} has no model {name!r}", hint=hint)
        if name or options:
            self._conversation.use_model(arguments if options else shlex.quote(name))
            self._console.model = self._conversation.model
            await self._console.refresh_status()
        shown = describe_model(self._conversation.model_state.chosen)
        return f"model: {shown} ({self._conversation.provider})"

    async def _models(self) -> list[ModelInfo]:
        try:
            return await self._console.agent.bridge.run(self._console.deps.list_models)
        except (ModelsUnavailable, UserError):
            return []

    def _model_menu(self, models: list[ModelInfo]) -> Menu:
        options = [MenuOption(printable(model.id), model.id, details=_model_details(model)) for model in sorted(models)]
        current = next((i for i, option in enumerate(options) if option.value == self._conversation.model), 0)
        title = [line(f"Models of {self._conversation.provider}", "strong")]
        return Menu(title, options, has_search=True, cursor=current)

    async def _context(self, arguments: str) -> str:
        usage = await self._conversation.context_usage()
        self._console.view.lines(context_lines(usage, self._conversation.model, self._console.screen.width))
        return ""

    async def _cost(self, arguments: str) -> str:
        ledger, session_id = self._console.deps.ledger, self._conversation.session_id

        def read() -> str:
            totals = ledger.totals(session_id=session_id)
            if not totals.requests:
                return "This session has no model requests yet."
            rows = [f"This session: {cost_text(totals)}, {totals.tokens:,} tokens, {duration(totals.seconds)}"]
            rows += [
                f"  {model}: {cost_text(spent)}, {spent.input_tokens:,} in ({spent.cached_tokens:,} cached), "
                f"{spent.output_tokens:,} out, {spent.requests} requests"
                for model, spent in ledger.totals_by("model", session_id=session_id).items()
            ]
            days = ledger.totals_by("day", days=1)
            rows += [f"Today, all sessions: {cost_text(spent)}, {spent.tokens:,} tokens" for spent in days.values()]
            return "\n".join(rows)

        return await self._console.agent.bridge.run(read)

    # -- views -------------------------------------------------------------------------------------------------

    async def _theme(self, arguments: str) -> str:
        console, name = self._console, arguments.strip()
        skins = await console.agent.bridge.run(load_skins, console.deps.home)
        if not name:
            now = console.screen.theme.name
            options = [
                MenuOption(each, each, details="in use" if each == now else printable(skin.description))
                for each, skin in skins.items()
            ]
            chosen = await self._choose(Menu([line("Colour themes", "strong")], options))
            if chosen is None:
                return f"theme: {console.screen.theme.name}"
            name = chosen.value
        skin = skins.get(name) or skins.get(name.lower())
        if skin is None:
            raise UserError(f"there is no theme {name!r}", hint=f"There are: {', '.join(skins)}.")
        name = skin.name
        console.screen.set_theme(Theme(name, has_colour=console.screen.theme.may_colour, looks=skin.looks))
        await console.agent.bridge.run(console.deps.save_setting, "display.skin", name)
        console.view.lines([(Piece("heading", f"theme: {name}"), Piece("code", "  code"), Piece("added", "  added"))])
        return ""

    async def _verbose(self, arguments: str) -> str:
        self._console.view.set_verbose(not self._console.view.verbose)
        return ""

    async def _steer(self, arguments: str) -> str:
        if not arguments.strip():
            raise UserError("/steer needs a text", hint="/steer TEXT gives it to the running turn.")
        if not self._console.steer(arguments):
            self._console.enqueue(arguments)
        return ""

    async def _queue(self, arguments: str) -> str:
        if not arguments.strip():
            raise UserError("/queue needs a text", hint="/queue TEXT sends it after the running turn.")
        self._console.enqueue(arguments)
        return ""

    async def _stop(self, arguments: str) -> str:
        subagents, session_id = self._console.agent.subagents, self._conversation.session_id
        count = subagents.count_background(session_id) if arguments.strip().lower() == "all" else 0
        if count:
            subagents.cancel_background(session_id)
        if self._console.stop_turn():
            return ""
        return "Background work is stopped." if count else "No turn is running."

    async def _quit(self, arguments: str) -> None:
        self._console.leave()


def argument_values(console: CommandedConsole, commands: CommandTable, name: str) -> list[tuple[str, str]]:
    """Return the values and descriptions that complete the argument of a command; in a worker."""
    command = commands.find(name, "terminal")
    if command is None:
        is_skill = any(row.name == name for row in console.skill_rows)
        return [(f"/{row.name}", row.description) for row in console.skill_rows if is_skill and row.name != name]
    match command.values:
        case "models":
            return _known_models(console)
        case "sessions":
            return known_sessions(console)
        case "themes":
            return [(name, printable(skin.description)) for name, skin in load_skins(console.deps.home).items()]
        case "personalities":
            known = known_personalities(console.deps.settings().personalities)
            return [(name, printable(each.description)) for name, each in known.items()] + [("none", "")]
        case words:
            return [(word, "") for word in words]


def _known_models(console: CommandedConsole) -> list[tuple[str, str]]:
    try:
        return [(model.id, _model_details(model)) for model in sorted(console.deps.list_models())]
    except (ModelsUnavailable, UserError):
        return []


def known_sessions(console: CommandedConsole) -> list[tuple[str, str]]:
    """Return ids and titles of the user's sessions; in a worker."""
    agent = console.agent
    work: Coroutine[Any, Any, list[SessionInfo]] = agent.call_transcript(
        "recent", LISTED_SESSIONS, of=agent.principals.visible_to(LOCAL)
    )
    return [(each.id, printable(each.title)) for each in agent.bridge.wait_core(work)]


def _model_details(model: ModelInfo) -> str:
    window = f"{model.context_length:,} tokens" if model.context_length else ""
    price = ""
    if model.input_price is not None and model.output_price is not None:
        price = f"${model.input_price * 1e6:.2f} / ${model.output_price * 1e6:.2f}"
    abilities = " ".join(word for word, has in (("images", model.vision), ("tools", model.tools)) if has)
    return ", ".join(filter(None, (window, price, abilities)))


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count != 1 else ''} ago"
    return "now"
