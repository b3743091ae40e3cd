"""The prompt: a line that the person types, given up for a while when something else comes first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from hermes_agent.terminal.line_editor import CompletionEntry

__all__ = ["PromptCancelled", "LinePrompt"]


class PromptCancelled(Exception):
    """The prompt was taken away; what was typed is kept for the next one."""


class LinePrompt:
    """Reads lines with history and completion. For the core loop.

    Args:
        entries: what can be completed.
    """

    def __init__(self, history: Path, entries: Callable[[], list[CompletionEntry]]) -> None:
        self._history = history
        self._entries = entries
        self._session: PromptSession[str] | None = None
        self._draft = ""

    async def read(self, prompt: str, *, is_wanted: Callable[[], bool]) -> str:
        """Return the line.

        Args:
            is_wanted: asked once the prompt can be given up: whether it is still to be shown.

        Raises:
            PromptCancelled: `give_up` was called, or it was not wanted.
            EOFError: the person left.
            KeyboardInterrupt: Ctrl-C.
        """
        if self._session is None:
            from hermes_agent.terminal.line_editor import line_editor  # prompt_toolkit costs 100 ms to import

            self._session = line_editor(self._history, self._entries)
        kept, self._draft = self._draft, ""

        def look_again() -> None:
            if not is_wanted():
                self.cancel()

        return await self._session.prompt_async(prompt, default=kept, pre_run=look_again)

    async def print_above(self, show: Callable[[], None]) -> None:
        """Write something, above the prompt if it is there."""
        app: Any = None if self._session is None else self._session.app
        if app is None or not app.is_running or app.is_done:
            show()
            return
        from prompt_toolkit.application import run_in_terminal  # loaded with the session
        from prompt_toolkit.application.current import set_app

        with set_app(app):
            await run_in_terminal(show)

    def cancel(self) -> None:
        """Take the prompt away, if it is there."""
        app: Any = None if self._session is None else self._session.app
        if app is not None and app.is_running and not app.is_done:
            assert self._session is not None
            self._draft = self._session.default_buffer.text
            app.exit(exception=PromptCancelled())
