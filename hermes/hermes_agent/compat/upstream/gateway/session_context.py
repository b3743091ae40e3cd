"""Whose message is worked on. Source: plugin contract §11."""

from hermes_agent.contracts.platform.session_context import get_session_env as get_session_env
