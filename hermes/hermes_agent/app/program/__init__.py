"""The installed program itself: its check, its update and its removal."""
