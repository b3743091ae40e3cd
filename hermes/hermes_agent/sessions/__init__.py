"""Sessions in `state.db`: transcript, step journal, usage, and their principals."""

from hermes_agent.sessions.commits import NewSession, SessionCommit, bound_chat, session_denied
from hermes_agent.sessions.principals import API_SERVER, LOCAL, Principals, folder_name
from hermes_agent.sessions.transcript import SCHEMA, SessionInfo, StoredSession, Transcript
from hermes_agent.sessions.turn_journal import (
    CallRecord,
    Delegation,
    RequestRecord,
    SentRecord,
    StoredTurn,
    TurnRecord,
    UnfinishedTurn,
    is_running,
    this_process,
)
from hermes_agent.sessions.usage import TURN, UsageLedger, UsageRecord, UsageTotals

__all__ = [
    "API_SERVER",
    "LOCAL",
    "SCHEMA",
    "TURN",
    "CallRecord",
    "Delegation",
    "StoredSession",
    "UsageLedger",
    "NewSession",
    "Principals",
    "RequestRecord",
    "SentRecord",
    "SessionInfo",
    "UsageTotals",
    "SessionCommit",
    "StoredTurn",
    "Transcript",
    "TurnRecord",
    "UnfinishedTurn",
    "UsageRecord",
    "bound_chat",
    "folder_name",
    "is_running",
    "session_denied",
    "this_process",
]
