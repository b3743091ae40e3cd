"""A plugin that is a package, and imports another one."""

import json

import leaf_dep


def register(ctx):
    schema = {"name": "weather", "description": "Tell the weather.", "parameters": {"type": "object", "properties": {}}}
    ctx.register_tool("weather", "weather", schema, lambda args, **kwargs: json.dumps({"leaf": leaf_dep.VERSION}))
