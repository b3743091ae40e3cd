"""The line editor: history in the home, completion of slash commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from hermes_agent.commands import CommandRegistry
from hermes_agent.io.files import PRIVATE

__all__ = ["line_editor"]


class _SlashCompleter(Completer):
    def __init__(self, commands: CommandRegistry) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or " " in text:
            return
        for name, command in sorted(self._commands.items()):
            if name.startswith(text[1:].lower()):
                yield Completion(
                    f"/{name}",
                    start_position=-len(text),
                    display=f"/{name} {command.args_hint}",
                    display_meta=command.description,
                )


def line_editor(history: Path, commands: CommandRegistry) -> PromptSession[str]:
    """Return an editor that remembers lines in the file `history` (0600)."""
    history.touch(mode=PRIVATE)
    return PromptSession(
        history=FileHistory(str(history)),
        completer=_SlashCompleter(commands),
        complete_while_typing=True,
        enable_history_search=False,
    )
