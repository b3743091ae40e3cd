"""Pictures and sound: looking, drawing, speaking, listening; over providers, programs and OpenAI's wire."""
