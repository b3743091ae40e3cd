"""Text as speech. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.media_calls import text_to_speech_tool as text_to_speech_tool
