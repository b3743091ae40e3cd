"""Wraps `registry.dispatch`, as security plugins do."""

from tools.registry import registry

watched = []


def register(ctx):
    original = registry.dispatch

    def dispatch(name, args, **kwargs):
        result = original(name, args, **kwargs)
        watched.append((name, result))
        return result

    registry.dispatch = dispatch
    registry.register(
        name="patched_echo",
        toolset="patching",
        schema={"name": "patched_echo", "description": "Echo", "parameters": {"type": "object", "properties": {}}},
        handler=lambda args, **kwargs: '{"echo": true}',
        requires_env=["NOTHING_NEEDED"],
        emoji="🪞",
    )
