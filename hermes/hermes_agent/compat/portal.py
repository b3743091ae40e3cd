"""How a request tells upstream's model service which program sends it. Source: plugin contract §11.1."""

from __future__ import annotations

__all__ = ["nous_portal_tags"]

CONTRACT_LEVEL = "0.19.0"
"""The version that plugins see, `hermes_cli.__version__`."""


def nous_portal_tags() -> list[str]:
    """Return the tags for `tags` of a request's body; each call gives a list of its own."""
    return ["product=hermes-agent", f"client=hermes-client-v{CONTRACT_LEVEL}"]
