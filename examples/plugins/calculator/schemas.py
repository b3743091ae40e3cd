"""What the model reads about the tools. Every word costs tokens in every request: short, but exact."""

from __future__ import annotations

__all__ = ["CALCULATE", "UNIT_CONVERT"]

CALCULATE = {
    "name": "calculate",
    "description": "Evaluate a math expression: + - * / // % **, sqrt, sin, cos, tan, log, log2, log10, abs, round, "
    "floor, ceil, min, max, pow, factorial, pi, e. Use it for any math.",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "e.g. 2**10, sqrt(144)*pi, 0.15*240 for 15%"}},
        "required": ["expression"],
    },
}

UNIT_CONVERT = {
    "name": "unit_convert",
    "description": "Convert between units: m km mi ft in cm, kg g lb oz, C F K, B KB MB GB TB, s ms min hr day.",
    "parameters": {
        "type": "object",
        "properties": {
            "value": {"type": "number"},
            "from_unit": {"type": "string", "description": "e.g. km, F, TB"},
            "to_unit": {"type": "string", "description": "e.g. mi, C, GB"},
        },
        "required": ["value", "from_unit", "to_unit"],
    },
}
