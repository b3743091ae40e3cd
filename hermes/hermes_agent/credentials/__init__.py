"""Secrets: systemd credentials, the environment, `.env`, and logins."""

from hermes_agent.credentials.lookup import Credentials

__all__ = ["Credentials"]
