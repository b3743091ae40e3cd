"""The four prompts of the plugin guide, with exponents and units drawn at random."""

from __future__ import annotations

import math
import random

from situations import Situation

RUNS = 40
PROMPTS = 4

_TEMPERATURES = {"fahrenheit": (lambda c: c * 9 / 5 + 32), "celsius": (lambda c: c), "kelvin": (lambda c: c + 273.15)}
_SIZES = {"megabytes": 1024**2, "gigabytes": 1024**3, "terabytes": 1024**4}


def draw_prompts(seed: int = 40) -> list[Situation]:
    """Return `RUNS` prompts, the four of the guide in turn; the first four are the guide's own."""
    drawn = random.Random(seed)
    return [_PROMPTS[n % PROMPTS](drawn, n // PROMPTS) for n in range(RUNS)]


def _power(drawn: random.Random, n: int) -> Situation:
    base, exponent = (2, 16) if n == 0 else (drawn.choice((2, 3, 5, 7)), drawn.randint(3, 24))
    return _prompt("power", n, f"What's {base} to the power of {exponent}?", base**exponent)


def _temperature(drawn: random.Random, n: int) -> Situation:
    source, target = ("fahrenheit", "celsius") if n == 0 else drawn.sample(sorted(_TEMPERATURES), 2)
    celsius = (100 - 32) * 5 / 9 if n == 0 else float(drawn.randint(5, 90))
    value = round(_TEMPERATURES[source](celsius), 2)
    celsius = {"fahrenheit": (value - 32) * 5 / 9, "celsius": value, "kelvin": value - 273.15}[source]
    return _prompt("temperature", n, f"Convert {value:g} {source} to {target}", _TEMPERATURES[target](celsius))


def _root(drawn: random.Random, n: int) -> Situation:
    factor = 2 if n == 0 else drawn.randint(3, 60)
    both = math.sqrt(factor * math.pi), math.sqrt(factor) * math.pi
    return _prompt("root", n, f"What's the square root of {factor} times pi?", *both)


def _data(drawn: random.Random, n: int) -> Situation:
    if n == 0:
        return _prompt("data", n, "How many gigabytes is 1.5 terabytes?", 1536)
    small, large = sorted(drawn.sample(sorted(_SIZES), 2), key=_SIZES.__getitem__)
    value = drawn.randint(2, 40) / 2
    return _prompt("data", n, f"How many {small} is {value:g} {large}?", value * _SIZES[large] / _SIZES[small])


def _prompt(name: str, n: int, question: str, value: float, *others: float) -> Situation:
    return Situation(f"{name}-{n + 1}", "guide", question, value=value, values=others)


_PROMPTS = (_power, _temperature, _root, _data)
