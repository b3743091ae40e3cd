"""Entry points: build a host and start a front door."""
