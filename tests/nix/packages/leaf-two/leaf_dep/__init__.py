"""What weather imports."""

VERSION = "2.0.0"
