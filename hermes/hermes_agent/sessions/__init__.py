"""Sessions and their transcript in `state.db`."""

from hermes_agent.sessions.transcript import SCHEMA, SessionInfo, Transcript

__all__ = ["SCHEMA", "SessionInfo", "Transcript"]
