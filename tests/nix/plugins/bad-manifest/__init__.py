"""Has a manifest that is not YAML."""

import json


def register(ctx):
    schema = {
        "name": "bad",
        "description": "Has a manifest that is not YAML.",
        "parameters": {"type": "object", "properties": {}},
    }
    ctx.register_tool("bad", "bad-manifest", schema, lambda args, **kwargs: json.dumps({"text": "bad"}))
