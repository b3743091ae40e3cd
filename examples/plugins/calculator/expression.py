"""Evaluate a math expression: Python's syntax, but only numbers, operators and the functions listed here.

Nothing is handed to `eval`. Every step is bounded, so that no expression can fill the memory or run for long.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

__all__ = ["MAX_CHARS", "evaluate"]

MAX_CHARS = 1_000
MAX_BITS = 100_000
"""Size of the largest integer on the way to the result."""
MAX_FACTORIAL = 5_000
MAX_MODULAR_BITS = 4_096
MAX_ROUND_DIGITS = 1_000

Number = int | float


def _power(base: Number, exponent: Number, modulus: int | None = None) -> Number:
    both_int = isinstance(base, int) and isinstance(exponent, int)
    if modulus is not None:
        if max(abs(int(v)).bit_length() for v in (base, exponent, modulus)) > MAX_MODULAR_BITS:
            raise ValueError("the numbers are too large")
        return pow(base, exponent, modulus)  # type: ignore[arg-type]
    if both_int and exponent > 0 and abs(int(base)).bit_length() * exponent > MAX_BITS and abs(base) > 1:
        raise ValueError("the result is too large")
    return pow(base, exponent)


def _shift_left(value: int, places: int) -> int:
    if places > MAX_BITS:
        raise ValueError("the result is too large")
    return value << places


def _factorial(value: int) -> int:
    if value > MAX_FACTORIAL:
        raise ValueError(f"factorial goes up to {MAX_FACTORIAL}")
    return math.factorial(value)


def _round(value: Number, digits: int | None = None) -> Number:
    if digits is not None and abs(digits) > MAX_ROUND_DIGITS:
        raise ValueError(f"round goes up to {MAX_ROUND_DIGITS} digits")
    return round(value, digits)


CONSTANTS: dict[str, float] = {"pi": math.pi, "e": math.e}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": _round,
    "min": min,
    "max": max,
    "pow": _power,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "floor": math.floor,
    "ceil": math.ceil,
    "factorial": _factorial,
}
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: _shift_left,
    ast.RShift: operator.rshift,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}


def evaluate(text: str) -> Number:
    """Return the value of the expression.

    Raises:
        SyntaxError: it is not an expression.
        ZeroDivisionError, ArithmeticError, ValueError, TypeError: it has no value, or one that is too large.
        NameError: it uses a name that is not a function or constant here.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"the expression has {len(text)} characters; at most {MAX_CHARS} are read")
    try:
        value = _value(ast.parse(text.strip(), "<string>", mode="eval").body)
    except (RecursionError, MemoryError):
        raise ValueError("the expression is nested too deeply") from None
    if isinstance(value, complex):
        raise ValueError("the result is not a real number")
    if not isinstance(value, int | float):
        raise TypeError(f"the result is a {type(value).__name__}, not a number")
    return value


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return _constant(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            return _bounded(BINARY[type(op)](_number(left), _number(right)))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
            return UNARY[type(op)](_number(operand))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return _bounded(FUNCTIONS[name](*(_value(argument) for argument in args)))
        case ast.Call(func=ast.Name(id=name)) if name not in FUNCTIONS:
            raise NameError(f"name '{name}' is not defined")
        case ast.List(elts=items) | ast.Tuple(elts=items):  # max([1, 2])
            return [_number(item) for item in items]
        case _:
            raise ValueError(f"{type(node).__name__} is not part of a math expression")


def _number(node: ast.expr) -> Number:
    value = _value(node)
    if isinstance(value, int | float):
        return value
    raise TypeError(f"{ast.unparse(node)} is not a number")


def _constant(name: str) -> float:
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name in FUNCTIONS:
        raise TypeError(f"{name} is a function: write {name}(…)")
    raise NameError(f"name '{name}' is not defined")


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError("the result is too large")
    return value
