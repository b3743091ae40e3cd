"""Greets people."""

import json

SCHEMA = {
    "name": "greet",
    "description": "Greet somebody.",
    "parameters": {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Who is greeted."}},
        "required": ["name"],
    },
}


def greet(args, **kwargs):
    return json.dumps({"text": f"Hello, {args['name']}."})


def register(ctx):
    ctx.register_tool("greet", "my-plugin", SCHEMA, greet)
