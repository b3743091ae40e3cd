"""The output of the live screen: each frame is one write, marked as a synchronized update."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from hermes_agent.console.styled import Theme

_BEGIN_UPDATE, _END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"


class FrameOutput(Vt100_Output):
    """An output that writes each frame at once."""

    depth: ColorDepth = ColorDepth.DEPTH_4_BIT
    _is_held = False

    @classmethod
    def of_terminal(cls, theme: Theme) -> FrameOutput:
        """Return the output of this process's terminal."""

        def size() -> Size:
            columns, rows = shutil.get_terminal_size()
            with contextlib.suppress(OSError, ValueError):
                columns, rows = os.get_terminal_size(sys.stdout.fileno())
            return Size(rows=rows or 24, columns=columns or 80)

        made = cls(sys.stdout, size, enable_cpr=False)
        made.depth = color_depth(theme)
        return made

    def get_default_color_depth(self) -> ColorDepth:
        """Return the colours of the theme."""
        return self.depth

    @contextlib.contextmanager
    def frame(self) -> Iterator[None]:
        """Hold what is written while the block lasts, then write it at once."""
        if self._is_held:
            yield
            return
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            if self._buffer:
                self._buffer.insert(0, _BEGIN_UPDATE)
                self._buffer.append(_END_UPDATE)
            self.flush()

    def flush(self) -> None:
        """Write, unless a frame is being made."""
        if not self._is_held:
            super().flush()

    def enable_bracketed_paste(self) -> None:
        """Enable it, unless a frame is being made: then it is enabled already."""
        if not self._is_held:
            super().enable_bracketed_paste()

    def disable_bracketed_paste(self) -> None:
        """Disable it, unless a frame is being made."""
        if not self._is_held:
            super().disable_bracketed_paste()


def color_depth(theme: Theme) -> ColorDepth:
    """Return the colours of a theme for prompt_toolkit."""
    return ColorDepth.DEPTH_4_BIT if theme.has_colour else ColorDepth.DEPTH_1_BIT
