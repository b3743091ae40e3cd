"""Say hello."""

import json

import leaf_dep


def register(ctx):
    schema = {"name": "hello", "description": "Say hello.", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("hello", "hello", schema, lambda args, **kwargs: json.dumps({"text": leaf_dep.__name__}))
