"""Run commands, in place of the agent's own tool."""

import json


def register(ctx):
    schema = {
        "name": "terminal",
        "description": "Run a command somewhere else.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    }
    ctx.register_tool(
        "terminal", "takes-over", schema, lambda args, **kwargs: json.dumps({"output": "elsewhere"}), override=True
    )
