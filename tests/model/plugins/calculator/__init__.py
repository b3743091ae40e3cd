"""The calculator of the evaluation: the schemas of the published guide, units by their abbreviations alone."""

from __future__ import annotations

import json
import math
from typing import Any

CALCULATE = {
    "name": "calculate",
    "description": (
        "Evaluate a mathematical expression and return the result. Supports arithmetic (+, -, *, /, **), functions "
        "(sqrt, sin, cos, log, abs, round, floor, ceil), and constants (pi, e). "
        "Use this for any math the user asks about."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "expression": {
                "type": "string",
                "description": "Math expression to evaluate (e.g., '2**10', 'sqrt(144)')",
            },
        },
        "required": ["expression"],
    },
}
UNIT_CONVERT = {
    "name": "unit_convert",
    "description": (
        "Convert a value between units. Supports length (m, km, mi, ft, in), weight (kg, lb, oz, g), temperature "
        "(C, F, K), data (B, KB, MB, GB, TB), and time (s, min, hr, day)."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "value": {"type": "number", "description": "The numeric value to convert"},
            "from_unit": {"type": "string", "description": "Source unit (e.g., 'km', 'lb', 'F', 'GB')"},
            "to_unit": {"type": "string", "description": "Target unit (e.g., 'mi', 'kg', 'C', 'MB')"},
        },
        "required": ["value", "from_unit", "to_unit"],
    },
}
SCALES: tuple[dict[str, float], ...] = (
    {"m": 1, "km": 1000, "mi": 1609.34, "ft": 0.3048, "in": 0.0254, "cm": 0.01},
    {"kg": 1, "g": 0.001, "lb": 0.453592, "oz": 0.0283495},
    {"b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4},
    {"s": 1, "ms": 0.001, "min": 60, "hr": 3600, "day": 86400},
)
NAMES = ("sqrt", "sin", "cos", "tan", "log", "log2", "log10", "floor", "ceil", "pi", "e", "factorial")
ALLOWED = {name: getattr(math, name) for name in NAMES} | {
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "pow": pow,
}


def calculate(args: dict[str, Any], **_: Any) -> str:
    """Evaluate the expression; other names than `ALLOWED` are an error."""
    expression = str(args.get("expression", "")).strip()
    try:
        result = eval(expression, {"__builtins__": {}}, ALLOWED)
    except ZeroDivisionError:
        return json.dumps({"expression": expression, "error": "Division by zero"})
    except Exception as error:
        return json.dumps({"expression": expression, "error": f"Invalid: {error}"})
    return json.dumps({"expression": expression, "result": result})


def unit_convert(args: dict[str, Any], **_: Any) -> str:
    """Convert; the error of an unknown unit names the two units and nothing else."""
    value, source, target = args.get("value"), str(args.get("from_unit", "")), str(args.get("to_unit", ""))
    given, wanted = source.strip().lower(), target.strip().lower()
    if value is None or not given or not wanted:
        return json.dumps({"error": "Need value, from_unit, and to_unit"})
    if {given, wanted} <= {"c", "f", "k"}:
        celsius = {"f": (value - 32) * 5 / 9, "k": value - 273.15}.get(given, value)
        result = round({"f": celsius * 9 / 5 + 32, "k": celsius + 273.15}.get(wanted, celsius), 4)
        return json.dumps({"input": f"{value} {source}", "result": result, "output": f"{result} {target}"})
    for scale in SCALES:
        if given in scale and wanted in scale:
            result = round(float(value) * scale[given] / scale[wanted], 6)
            return json.dumps({"input": f"{value} {source}", "result": result, "output": f"{result} {target}"})
    return json.dumps({"error": f"Cannot convert {source} → {target}"})


def register(ctx: Any) -> None:
    """Register the two tools."""
    ctx.register_tool(name="calculate", toolset="calculator", schema=CALCULATE, handler=calculate)
    ctx.register_tool(name="unit_convert", toolset="calculator", schema=UNIT_CONVERT, handler=unit_convert)
