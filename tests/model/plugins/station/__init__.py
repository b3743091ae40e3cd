"""Tools of the evaluation that never work: one raises, one returns an error, one says no in plain text."""

from __future__ import annotations

import json
from typing import Any


def read_sensor(args: dict[str, Any], **_: Any) -> str:
    """Raise, as a handler with a defect does."""
    raise RuntimeError(f"no reading from sensor {args.get('sensor')}: the bus is offline")


def send_message(args: dict[str, Any], **_: Any) -> str:
    """Return an error."""
    return json.dumps({"error": f"the mail server refused {args.get('to')}: mailbox unavailable"})


def get_stock_level(args: dict[str, Any], **_: Any) -> str:
    """Return a failure in the form of many plugins: `success` is false."""
    return json.dumps({"success": False, "error": "the warehouse database is locked"})


def _schema(name: str, description: str, **properties: str) -> dict[str, Any]:
    shaped = {key: {"type": "string", "description": text} for key, text in properties.items()}
    parameters = {"type": "object", "properties": shaped, "required": list(properties)}
    return {"name": name, "description": description, "parameters": parameters}


def register(ctx: Any) -> None:
    """Register the three tools."""
    for handler, schema in (
        (read_sensor, _schema("read_sensor", "Read the temperature of a sensor.", sensor="Name of the sensor")),
        (send_message, _schema("send_message", "Send a mail.", to="Address", text="The text")),
        (get_stock_level, _schema("get_stock_level", "How many pieces of an article are in stock.", article="Name")),
    ):
        ctx.register_tool(name=schema["name"], toolset="station", schema=schema, handler=handler)
