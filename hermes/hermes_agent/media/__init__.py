"""Images and speech: describe and generate images, text to speech, transcription."""
