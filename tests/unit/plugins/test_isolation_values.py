"""Errors and values that the process of a plugin describes: a plugin may describe anything."""

from __future__ import annotations

import pytest

from hermes_agent.plugins.isolation.values import describe_error, make_error


def test_an_error_that_both_sides_know_keeps_its_class_and_text() -> None:
    made = make_error(describe_error(KeyError("the key")))
    assert (type(made), made.args) == (KeyError, ("the key",))


@pytest.mark.parametrize(
    ("module", "name", "base"),
    [
        ("hermes_agent.contracts.absent", "Lost", RuntimeError),
        ("os", "error", RuntimeError),
        ("builtins", "SystemExit", RuntimeError),
        ("builtins", "print", RuntimeError),
        ("builtins", "UnicodeDecodeError", RuntimeError),  # takes other arguments
        ("a plugin", "no identifier", RuntimeError),
    ],
)
def test_any_other_error_is_a_runtime_error_with_the_text(module: str, name: str, base: type[Exception]) -> None:
    made = make_error({"module": module, "type": name, "text": "what happened"})
    assert isinstance(made, base) and "what happened" in str(made)
