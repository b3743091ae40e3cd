"""Which log `hermes logs` reads, and from which moment on."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.service.log_file import LogFile
from hermes_agent.service.log_journal import JournalReader
from hermes_agent.service.state import STATE_NAME, read_state

__all__ = ["LogSource", "choose_reader", "parse_since"]

LogSource = Literal["auto", "journal", "file"]
_AGO = re.compile(r"(\d+)\s*(s|sec|m|min|h|d|w)(?:\s+ago)?")
_UNIT_S = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def choose_reader(home: Path, *, source: LogSource = "auto", unit: str | None = None) -> LogFile | JournalReader:
    """Return the reader: what the daemon's last start with this home recorded decides.

    Args:
        source: `journal` or `file` insist on one; `auto` takes the journal when the daemon logs there.
        unit: read the journal of this unit, whatever was recorded.

    Raises:
        UserError: the journal is asked for, and no unit is known.
    """
    file = LogFile(home / "logs" / "agent.log")
    if source == "file":
        return file
    state = read_state(home)
    if unit is not None:
        name = unit if "." in unit else f"{unit}.service"
        return JournalReader(name, state.scope if state is not None and state.unit == name else None)
    if state is not None and (state.log == "journal" or source == "journal") and (state.unit or state.invocation):
        return JournalReader(state.unit, state.scope, state.invocation)
    if source == "journal":
        raise UserError(
            f"no daemon that systemd started has run with this home: {home / STATE_NAME} names no unit",
            hint="Name the unit: `hermes logs --unit hermes-agent`.",
        )
    return file


def parse_since(text: str, now: float | None = None) -> float:
    """Return the moment that `text` means, in seconds since 1970.

    Args:
        text: `2026-11-21`, `2026-11-21 08:30` (local time, or with an offset), `today`, `yesterday`, or how long
            ago: `90s`, `10m`, `2h`, `3d`, `1w`.

    Raises:
        UserError: it is none of these.
    """
    moment = time.time() if now is None else now
    word = text.strip().lower()
    if (ago := _AGO.fullmatch(word)) is not None:
        return moment - int(ago[1]) * _UNIT_S[ago[2]]
    midnight = datetime.fromtimestamp(moment).replace(hour=0, minute=0, second=0, microsecond=0)
    if word == "today":
        return midnight.timestamp()
    if word == "yesterday":
        return (midnight - timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise UserError(
            f"--since {text!r} is no time",
            hint="Write 2026-11-21, '2026-11-21 08:30', today, yesterday, or how long ago: 90s, 10m, 2h, 3d, 1w.",
            exit_status=EXIT_USAGE,
        ) from None
