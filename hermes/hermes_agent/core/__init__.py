"""Values and pure functions that every other package may use; imports nothing of ours."""
