"""The line editor: history in the home, completion of slash commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory

from hermes_agent.commands import HelpRow
from hermes_agent.core.redaction import redactor
from hermes_agent.system.files import PRIVATE


class SlashCompleter(Completer):
    """Completes names after `/`."""

    def __init__(self, entries: Callable[[], list[HelpRow]]) -> None:
        self._entries = entries

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what fits the text before the cursor."""
        text = document.text_before_cursor
        if not text.startswith("/") or " " in text:
            return
        for entry in sorted(self._entries()):
            if entry.name.startswith(text[1:].lower()):
                yield Completion(
                    f"/{entry.name}",
                    start_position=-len(text),
                    display=f"/{entry.name} {entry.hint}".rstrip(),
                    display_meta=entry.description,
                )


def hint_for(text: str, entries: Callable[[], list[HelpRow]]) -> str:
    """Return what may follow the command at the beginning of `text`, and what it does; empty for anything else."""
    name, blank, _ = text.removeprefix("/").lower().partition(" ")
    if not text.startswith("/") or not blank:
        return ""
    entry = next((e for e in entries() if e.name == name), None)
    return "" if entry is None else f"{entry.hint}  {entry.description}".strip()


class _MaskedHistory(FileHistory):
    """Lines that were typed: as they are in this process, without known secrets in the file."""

    def store_string(self, string: str) -> None:
        """Write a line."""
        super().store_string(redactor.mask_known(string))


def line_editor(history: Path, entries: Callable[[], list[HelpRow]]) -> PromptSession[str]:
    """Return an editor that remembers lines in the file `history` (0600)."""
    history.touch(mode=PRIVATE)
    session: PromptSession[str] = PromptSession(
        history=_MaskedHistory(str(history)),
        completer=SlashCompleter(entries),
        complete_while_typing=True,
        enable_history_search=False,
    )
    session.rprompt = lambda: hint_for(session.default_buffer.text, entries)
    return session
