"""Where the model server of others is to be had."""

from peers.fixture import scripted

__all__ = ["scripted"]
