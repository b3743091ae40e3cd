"""The tools: each takes the arguments as a mapping and returns JSON text, errors included."""

from __future__ import annotations

import json
from typing import Any

from .expression import evaluate

__all__ = ["calculate", "unit_convert"]

LENGTH = {"m": 1, "km": 1000, "mi": 1609.34, "ft": 0.3048, "in": 0.0254, "cm": 0.01}
WEIGHT = {"kg": 1, "g": 0.001, "lb": 0.453592, "oz": 0.0283495}
DATA = {"b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4}
TIME = {"s": 1, "ms": 0.001, "min": 60, "hr": 3600, "day": 86400}
SCALES = (LENGTH, WEIGHT, DATA, TIME)
TEMPERATURES = frozenset("cfk")

WORDS = {
    "celsius": "c", "centigrade": "c", "fahrenheit": "f", "kelvin": "k",
    "meter": "m", "metre": "m", "kilometer": "km", "kilometre": "km", "mile": "mi", "foot": "ft", "feet": "ft",
    "inch": "in", "inche": "in", "centimeter": "cm", "centimetre": "cm",
    "kilogram": "kg", "kilo": "kg", "gram": "g", "pound": "lb", "ounce": "oz",
    "byte": "b", "kilobyte": "kb", "megabyte": "mb", "gigabyte": "gb", "terabyte": "tb",
    "second": "s", "sec": "s", "millisecond": "ms", "minute": "min", "hour": "hr", "h": "hr",
}  # fmt: skip
"""Words that people and small models write for a unit, without the plural's `s`."""


def calculate(args: dict[str, Any], **_: Any) -> str:
    """Evaluate `expression`; the result is `{"expression", "result"}` or has an `error`."""
    expression = str(args.get("expression") or "").strip()
    if not expression:
        return json.dumps({"error": "No expression provided"})
    try:
        return json.dumps({"expression": expression, "result": evaluate(expression)})
    except ZeroDivisionError:
        return json.dumps({"expression": expression, "error": "Division by zero"})
    except (ArithmeticError, NameError, SyntaxError, TypeError, ValueError) as exc:
        return json.dumps({"expression": expression, "error": f"Invalid: {exc}"})


def unit_convert(args: dict[str, Any], **_: Any) -> str:
    """Convert `value` from `from_unit` to `to_unit`; the result is `{"input", "result", "output"}` or `{"error"}`."""
    value = args.get("value")
    from_unit, to_unit = str(args.get("from_unit") or "").strip(), str(args.get("to_unit") or "").strip()
    if value is None or not from_unit or not to_unit:
        return json.dumps({"error": "Need value, from_unit, and to_unit"})
    try:
        result = _convert(float(value), _unit(from_unit), _unit(to_unit))
    except (OverflowError, TypeError, ValueError) as exc:
        return json.dumps({"error": f"Conversion failed: {exc}"})
    if result is None:
        return json.dumps({"error": f"Cannot convert {from_unit} → {to_unit}"})
    return json.dumps({"input": f"{value} {from_unit}", "result": result, "output": f"{result} {to_unit}"})


def _convert(value: float, from_unit: str, to_unit: str) -> float | None:
    """Return the converted value, rounded, or None when the two are not units of one quantity."""
    if from_unit in TEMPERATURES and to_unit in TEMPERATURES:
        return round(_from_celsius(_to_celsius(value, from_unit), to_unit), 4)
    for scale in SCALES:
        if from_unit in scale and to_unit in scale:
            return round(value * scale[from_unit] / scale[to_unit], 6)
    return None


def _to_celsius(value: float, unit: str) -> float:
    if unit == "f":
        return (value - 32) * 5 / 9
    return value - 273.15 if unit == "k" else value


def _from_celsius(celsius: float, unit: str) -> float:
    if unit == "f":
        return celsius * 9 / 5 + 32
    return celsius + 273.15 if unit == "k" else celsius


def _unit(name: str) -> str:
    plain = name.lower().lstrip("°")
    if plain in TEMPERATURES or any(plain in scale for scale in SCALES):
        return plain
    singular = plain.removesuffix("s")
    return WORDS.get(plain) or WORDS.get(singular) or singular
