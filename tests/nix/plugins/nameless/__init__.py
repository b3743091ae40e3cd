"""Has a manifest without a name."""

import json


def register(ctx):
    schema = {
        "name": "nameless",
        "description": "Has a manifest without a name.",
        "parameters": {"type": "object", "properties": {}},
    }
    ctx.register_tool("nameless", "nameless", schema, lambda args, **kwargs: json.dumps({"text": "nameless"}))
