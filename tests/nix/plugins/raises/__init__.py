"""Fails while it registers."""


def register(ctx):
    raise RuntimeError("the flux capacitor is not charged")
