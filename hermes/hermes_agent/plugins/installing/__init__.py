"""Bring a plugin onto this machine: understand the source, fetch it, look at it, put it in its place.

Nothing here asks or prints; `hermes plugins install` and `update` do.
"""
