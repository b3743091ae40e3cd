"""Has no manifest."""

import json


def register(ctx):
    schema = {"name": "lost", "description": "Has no manifest.", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("lost", "no-manifest", schema, lambda args, **kwargs: json.dumps({"text": "lost"}))
