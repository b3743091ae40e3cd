"""What the process is to mask: every secret of credentials and config, as plugins and config declare them."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_agent.config import Config
from hermes_agent.config.secrets import secret_values, secret_variables
from hermes_agent.core.redact import redactor
from hermes_agent.credentials import Credentials
from hermes_agent.plugins.config_schema import with_options
from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["learn_secrets"]


def learn_secrets(credentials: Credentials, config: Config, manifests: Iterable[PluginManifest] = ()) -> None:
    """Have the redactor learn every secret that there is now; what it knew before stays known.

    Args:
        manifests: of the plugins that were found. What was learnt without them by name or form alone, and is declared
            harmless, is forgotten.
    """
    known = list(manifests)
    named = dict.fromkeys(secret_variables(config), True)
    secrets = credentials.secrets(_declared(known) | named)
    if known:
        redactor.forget(credentials.secrets(named) - secrets)
    redactor.learn(secrets)
    redactor.learn(secret_values(config, with_options(known)))


def _declared(manifests: Iterable[PluginManifest]) -> dict[str, bool]:
    """Return, by variable, whether plugins declare it a secret. One that says so counts against others."""
    found: dict[str, bool] = {}
    for manifest in manifests:
        for name, secret in manifest.variables().items():
            found[name] = found.get(name, False) or secret
    return found
