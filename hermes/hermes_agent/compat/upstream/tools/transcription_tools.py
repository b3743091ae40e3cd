"""What is said in a file. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.media_calls import transcribe_audio as transcribe_audio
