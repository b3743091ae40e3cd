"""One of two."""

import json


def register(ctx):
    schema = {"name": "twin_a", "description": "One of two.", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("twin_a", "twin-a", schema, lambda args, **kwargs: json.dumps({"text": "twin_a"}))
