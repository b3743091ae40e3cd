"""`examples/plugins/calculator`: what it answers, also compared with the published guide where that is at hand."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "plugins" / "calculator"
UNITS = (
    "m",
    "km",
    "mi",
    "ft",
    "in",
    "cm",
    "kg",
    "g",
    "lb",
    "oz",
    "B",
    "KB",
    "MB",
    "GB",
    "TB",
    "s",
    "ms",
    "min",
    "hr",
    "day",
)
UNITS += ("C", "F", "K")
FORMS = ("{0} + {1}", "{0} - {1}", "({0}) * ({1})", "({0}) / ({1})", "({0}) // ({1})", "({0}) % ({1})", "-({0})")
FORMS += ("sqrt({0})", "sin({0})", "log({0})", "abs({0})", "round({0}, 2)", "max({0}, {1})", "floor({0})", "({0})**2")
GUIDES = Path(os.environ.get("HERMES_GUIDES") or ROOT.parent / "shared" / "guides")


@pytest.fixture(scope="module")
def tools() -> Iterator[ModuleType]:
    """The example's handlers, imported as a package of their own."""
    spec = importlib.util.spec_from_file_location(
        "example_calculator", EXAMPLE / "__init__.py", submodule_search_locations=[str(EXAMPLE)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["example_calculator"] = module
    spec.loader.exec_module(module)
    yield module.tools
    for name in [n for n in sys.modules if n.partition(".")[0] == "example_calculator"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def guide() -> Any:
    """The handlers as the guide prints them."""
    page = GUIDES / "build-a-plugin.en.md"
    if not page.is_file():
        pytest.skip(f"the guides are not at hand: there is no {page} (HERMES_GUIDES names their folder)")
    code = next(
        block
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if block.startswith('"""Tool handlers')
    )
    names: dict[str, Any] = {}
    exec(compile(code, "guide", "exec"), names)
    return SimpleNamespace(**names)


def calculate(tools: ModuleType, expression: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(tools.calculate({"expression": expression}, task_id="t"))
    return answer


def convert(tools: ModuleType, value: object, from_unit: str, to_unit: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        tools.unit_convert({"value": value, "from_unit": from_unit, "to_unit": to_unit}, task_id="t")
    )
    return answer


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2**16", 65536),
        ("sqrt(2)*pi", math.sqrt(2) * math.pi),
        ("1 + 2 * 3 - 4 / 8", 6.5),
        ("-7 // 2 + 7 % 3", -3),
        ("factorial(20)", math.factorial(20)),
        ("max([3, 9, 2]) + min(4, 5)", 13),
        ("round(2.71828, 2)", 2.72),
        ("pow(2, 10, 7)", 2),
        ("log(8, 2) + log2(8) + log10(1000)", 9.0),
        ("0x10 | 1 << 4", 16),
        (" 1_000 ", 1000),
    ],
)
def test_an_expression_has_its_value(tools: ModuleType, expression: str, result: float) -> None:
    answer = calculate(tools, expression)

    assert answer == {"expression": expression.strip(), "result": pytest.approx(result)}


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("", "No expression provided"),
        (None, "No expression provided"),
        ("1/0", "Division by zero"),
        ("sqrt(-1)", "Invalid: math domain error"),
        ("2 +", "Invalid: invalid syntax (<string>, line 1)"),
        ("radius * 2", "Invalid: name 'radius' is not defined"),
        ("open('x')", "Invalid: name 'open' is not defined"),
        ("(1).__class__", "Invalid: Attribute is not part of a math expression"),
        ("[x for x in (1,)]", "Invalid: ListComp is not part of a math expression"),
        ("'a' * 3", "Invalid: Constant is not part of a math expression"),
        ("lambda: 1", "Invalid: Lambda is not part of a math expression"),
        ("(-8) ** 0.5", "Invalid: the result is not a real number"),
        ("sqrt", "Invalid: sqrt is a function: write sqrt(…)"),
        ("[1, 2]", "Invalid: the result is a list, not a number"),
    ],
)
def test_what_has_no_value_is_an_error_in_words(tools: ModuleType, expression: str | None, error: str) -> None:
    assert calculate(tools, expression)["error"] == error


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9",
        "1 << 10**12",
        "factorial(10**9)",
        "factorial(factorial(10))",
        "pow(7, 10**4000, 10**4000 + 1)",
        "round(5, -10**9)",
        "10**4000 * " * 200 + "1",
        "(" * 400 + "1" + ")" * 400,
        "-" * 900 + "1",
        "1+" * 10_000 + "1",
    ],
)
def test_no_expression_takes_the_machine(tools: ModuleType, expression: str) -> None:
    started = time.process_time()

    answer = calculate(tools, expression)

    assert "error" in answer or expression.startswith("-")
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("value", "from_unit", "to_unit", "output"),
    [
        (100, "F", "C", "37.7778 C"),
        (5, "km", "mi", "3.106864 mi"),
        (1.5, "TB", "GB", "1536.0 GB"),
        ("0", "c", "K", "273.15 K"),
        (2, "hr", "min", "120.0 min"),
        (100, "fahrenheit", "celsius", "37.7778 celsius"),
        (1.5, "terabytes", "Gigabytes", "1536.0 Gigabytes"),
        (3, "feet", "inches", "36.0 inches"),
    ],
)
def test_a_value_is_converted(tools: ModuleType, value: object, from_unit: str, to_unit: str, output: str) -> None:
    answer = convert(tools, value, from_unit, to_unit)

    assert (answer["input"], answer["output"]) == (f"{value} {from_unit}", output)
    assert f"{answer['result']} {to_unit}" == output


@pytest.mark.parametrize(
    ("value", "from_unit", "to_unit", "error"),
    [
        (1, "km", "kg", "Cannot convert km → kg"),
        (1, "parsec", "km", "Cannot convert parsec → km"),
        (None, "km", "mi", "Need value, from_unit, and to_unit"),
        (1, " ", "mi", "Need value, from_unit, and to_unit"),
        ("many", "km", "mi", "Conversion failed: could not convert string to float: 'many'"),
    ],
)
def test_what_cannot_be_converted_is_an_error_in_words(
    tools: ModuleType, value: object, from_unit: str, to_unit: str, error: str
) -> None:
    assert convert(tools, value, from_unit, to_unit) == {"error": error}


def test_expressions_have_the_results_of_the_guide(tools: ModuleType, guide: Any) -> None:
    draw = random.Random(20_260)
    fixed = ["2**10", "sqrt(144)", "pi * 5**2", "1/0", "e", "floor(2.7)-ceil(2.1)", "2**16", "abs(-3)", "log(0)", ""]
    expressions = fixed + [_expression(draw, 3) for _ in range(500)]

    for expression in expressions:
        ours, theirs = calculate(tools, expression), json.loads(guide.calculate({"expression": expression}))
        assert ours == theirs or ("error" in ours and "error" in theirs), expression


def _expression(draw: random.Random, depth: int) -> str:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice([str(draw.randrange(20)), f"{draw.uniform(0, 9):.3f}", "pi", "e"])
    inner = [_expression(draw, depth - 1) for _ in range(2)]
    return draw.choice(FORMS).format(*inner)


def test_conversions_have_the_results_of_the_guide(tools: ModuleType, guide: Any) -> None:
    draw = random.Random(20_261)
    units = [*UNITS, "f", "kb", "Km"]

    for _ in range(1000):
        args = {
            "value": draw.choice([draw.randrange(1000), round(draw.uniform(-50, 500), 3), "7.5"]),
            "from_unit": draw.choice(units),
            "to_unit": draw.choice(units),
        }
        assert json.loads(tools.unit_convert(args)) == json.loads(guide.unit_convert(args)), args


def test_the_schemas_have_the_parameters_of_the_guide(tools: ModuleType) -> None:
    schemas = sys.modules["example_calculator"].schemas
    shapes = [
        (s["name"], list(s["parameters"]["properties"]), s["parameters"]["required"])
        for s in (schemas.CALCULATE, schemas.UNIT_CONVERT)
    ]

    assert shapes == [
        ("calculate", ["expression"], ["expression"]),
        ("unit_convert", ["value", "from_unit", "to_unit"], ["value", "from_unit", "to_unit"]),
    ]
