"""What the console uses of its host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from hermes_agent.config.settings import Settings
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.models.model_catalog import ModelInfo
from hermes_agent.sessions import UsageLedger

BusyMode = Literal["interrupt", "queue", "steer"]


class BackgroundWork(LazyNamedTuple):
    """A background process, or tasks of subagents."""

    kind: Literal["command", "subagent"]
    text: str
    """The command, or the goal of the first task."""
    since: float
    """Seconds since the epoch; 0 if unknown."""


class StartQuestion(LazyNamedTuple):
    """A question that the user answers before the first message."""

    title: str
    details: str
    """Lines below the title, such as a diff."""
    accept: Callable[[], str]
    """Called in a worker for the answer yes; returns what happened."""


class ConsoleDeps(LazyNamedTuple):
    """Services of the console."""

    home: Path
    directory: Path
    """The working directory."""
    ledger: UsageLedger
    settings: Callable[[], Settings]
    save_setting: Callable[[str, Any], None]
    """Writes a setting into the config. Raises UserError."""
    list_models: Callable[[], list[ModelInfo]]
    """Returns the models of the configured provider. Blocks; raises ModelsUnavailable."""
    add_note: Callable[[str], None]
    """Adds a note to the agent's memory. Raises HermesError."""
    background: Callable[[str], Sequence[BackgroundWork]] = lambda session_id: ()
    """Returns what works in the background for a session; in a worker."""
    has_local_files: bool = True
    busy_mode: BusyMode = "queue"
    """What a message does that is sent during a turn."""
    shows_reasoning: bool = False
    questions: Sequence[StartQuestion] = ()
    """What is asked before the first message."""
