"""Lies one level down."""

import json


def register(ctx):
    schema = {
        "name": "inner",
        "description": "Lies one level down.",
        "parameters": {"type": "object", "properties": {}},
    }
    ctx.register_tool("inner", "inner", schema, lambda args, **kwargs: json.dumps({"text": "inner"}))
