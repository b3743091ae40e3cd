"""Text to speech. Source: plugin contract §8.7."""

from hermes_agent.contracts.tts import DEFAULT_OUTPUT_FORMAT as DEFAULT_OUTPUT_FORMAT
from hermes_agent.contracts.tts import TTSProvider as TTSProvider
