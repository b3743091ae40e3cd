"""What weather imports."""

VERSION = "1.0.0"
