"""Speech to text. Source: plugin contract §8.7."""

from hermes_agent.contracts.transcription import TranscriptionProvider as TranscriptionProvider
