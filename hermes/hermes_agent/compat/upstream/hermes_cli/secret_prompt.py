"""Asking for a secret. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.prompts import masked_secret_prompt as masked_secret_prompt
