"""Sessions and their transcript in `state.db`."""

from hermes_agent.sessions.people import API_SERVER, LOCAL, People
from hermes_agent.sessions.transcript import SCHEMA, SessionInfo, Transcript

__all__ = ["API_SERVER", "LOCAL", "SCHEMA", "People", "SessionInfo", "Transcript"]
