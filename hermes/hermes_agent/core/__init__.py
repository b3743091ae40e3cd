"""Values and pure functions for every other package; imports nothing of this project."""
