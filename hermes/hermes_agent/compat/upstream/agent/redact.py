"""Texts without secrets. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.secrets import redact_sensitive_text as redact_sensitive_text
