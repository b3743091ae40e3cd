"""The text of messages. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.texts import flatten_message_text as flatten_message_text
