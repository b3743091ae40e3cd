"""Say hello."""

import json


def register(ctx):
    schema = {"name": "hello", "description": "Say hello.", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("hello", "hello", schema, lambda args, **kwargs: json.dumps({"text": "hello"}))
