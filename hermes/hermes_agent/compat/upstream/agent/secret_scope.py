"""Secrets by name. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.secrets import UnscopedSecretError as UnscopedSecretError
from hermes_agent.compat.secrets import get_secret as get_secret
