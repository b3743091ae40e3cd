"""Wants a key."""

import json


def register(ctx):
    schema = {"name": "ask", "description": "Wants a key.", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("ask", "needs-key", schema, lambda args, **kwargs: json.dumps({"text": "ask"}))
