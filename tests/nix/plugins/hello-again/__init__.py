"""Say hello once more."""

import json


def register(ctx):
    schema = {
        "name": "hello",
        "description": "Say hello once more.",
        "parameters": {"type": "object", "properties": {}},
    }
    ctx.register_tool("hello", "hello-again", schema, lambda args, **kwargs: json.dumps({"text": "hello"}))
