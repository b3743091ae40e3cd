"""One of two."""

import json


def register(ctx):
    schema = {"name": "twin_b", "description": "One of two.", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("twin_b", "twin-b", schema, lambda args, **kwargs: json.dumps({"text": "twin_b"}))
