"""Where secrets come from: systemd credentials, the environment, `.env`."""

from hermes_agent.credentials.lookup import Credentials

__all__ = ["Credentials"]
