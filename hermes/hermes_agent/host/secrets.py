"""What the process is to mask: every secret of credentials and config, as plugins and config declare them."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_agent.config import Config
from hermes_agent.config.secrets import secret_values, secret_variables
from hermes_agent.core.redact import redactor
from hermes_agent.credentials import Credentials
from hermes_agent.plugins.config_schema import schema_with_options
from hermes_agent.plugins.record import LoadedPlugin

__all__ = ["register_secrets"]


def register_secrets(credentials: Credentials, config: Config, records: Iterable[LoadedPlugin] = ()) -> None:
    """Have the redactor learn every secret that there is now; what it knew before stays known.

    Args:
        records: of the plugins that were found. What was learnt without them by name or form alone, and is declared
            harmless by one that runs, is forgotten.
    """
    found = list(records)
    known = [record.manifest for record in found]
    named = dict.fromkeys(secret_variables(config), True)
    secrets = credentials.secrets(_declared_secrets(found) | named)
    if known:
        redactor.forget(credentials.secrets(named) - secrets)
    redactor.learn(secrets)
    redactor.learn(secret_values(config, schema_with_options(known)))


def _declared_secrets(records: Iterable[LoadedPlugin]) -> dict[str, bool]:
    """Return, by variable, whether plugins declare it a secret.

    One that says so counts against others. That a variable is harmless only a plugin says that the operator lets run.
    """
    found: dict[str, bool] = {}
    for record in records:
        for name, secret in record.manifest.variables().items():
            if secret or record.enabled:
                found[name] = found.get(name, False) or secret
    return found
