"""The administration of skills: taps, installation, and `hermes skills`."""
