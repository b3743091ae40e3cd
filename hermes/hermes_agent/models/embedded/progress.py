"""How far a download is: a bar in a terminal, a line every ten percent elsewhere; on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self, TextIO

from hermes_agent.core.text import has_colour

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


STEP_PERCENT = 10


class DownloadProgress:
    """What a download tells about itself, in plain lines: for logs and pipes.

    A context manager; it shows nothing outside of the block.

    Args:
        total: bytes of the whole.
    """

    def __init__(self, title: str, total: int, stream: TextIO) -> None:
        self._title, self._total, self._stream = title, total, stream
        self._said = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Show nothing more."""

    def advance(self, done: int) -> None:
        """Write a line when another ten percent are there.

        Args:
            done: bytes of the whole that are there; it may go back.
        """
        step = done * 100 // max(1, self._total) // STEP_PERCENT
        if step > self._said:
            self.note(f"{self._title}: {step * STEP_PERCENT} % ({format_bytes(done)} of {format_bytes(self._total)})")
            self._said = step

    def note(self, text: str) -> None:
        """Write one sentence in a line of its own."""
        print(text, file=self._stream, flush=True)


class DownloadBar(DownloadProgress):
    """A bar with amount, speed and time left, for a terminal."""

    _rich: RichProgress

    def __enter__(self) -> Self:
        from rich import progress  # 70 ms of CPU that only a terminal needs
        from rich.console import Console

        self._rich = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(file=self._stream, color_system="auto" if has_colour(self._stream) else None),
        )
        self._task = self._rich.add_task(self._title, total=self._total)
        self._rich.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._rich.stop()

    def advance(self, done: int) -> None:
        """Move the bar."""
        self._rich.update(self._task, completed=done)

    def note(self, text: str) -> None:
        """Write the sentence above the bar."""
        self._rich.console.print(text, markup=False, highlight=False)


def make_progress(title: str, total: int, stream: TextIO | None = None) -> DownloadProgress:
    """Return a bar when `stream` (stderr) is a terminal, else lines."""
    out = sys.stderr if stream is None else stream
    return DownloadBar(title, total, out) if out.isatty() else DownloadProgress(title, total, out)


def format_bytes(count: int) -> str:
    """Return bytes in words: `1.12 GB`, `98.4 MB`, `512 B` (decimal, as disks are sold)."""
    if count >= 1_000_000_000:
        return f"{count / 1e9:.2f} GB"
    if count >= 1_000_000:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count} B"
