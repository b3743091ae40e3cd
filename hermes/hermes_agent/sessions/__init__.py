"""Sessions in `state.db`: transcript, step journal, usage, and whose they are."""

from hermes_agent.sessions.delegations import Delegation
from hermes_agent.sessions.journal import (
    CallNote,
    RequestNote,
    SentNote,
    StoredTurn,
    TurnNote,
    Unfinished,
    is_running,
    this_process,
)
from hermes_agent.sessions.people import API_SERVER, LOCAL, People, folder_name
from hermes_agent.sessions.steps import NewSession, Step, not_yours
from hermes_agent.sessions.transcript import SCHEMA, Kept, SessionInfo, Transcript
from hermes_agent.sessions.usage import TURN, Ledger, Spent, UsageNote

__all__ = [
    "API_SERVER",
    "LOCAL",
    "SCHEMA",
    "TURN",
    "CallNote",
    "Delegation",
    "Kept",
    "Ledger",
    "NewSession",
    "People",
    "RequestNote",
    "SentNote",
    "SessionInfo",
    "Spent",
    "Step",
    "StoredTurn",
    "Transcript",
    "TurnNote",
    "Unfinished",
    "UsageNote",
    "folder_name",
    "is_running",
    "not_yours",
    "this_process",
]
