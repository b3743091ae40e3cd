from __future__ import annotations

from hermes_agent.core import errors


def test_the_exit_statuses_are_the_documented_ones():
    assert (errors.EXIT_OK, errors.EXIT_FAILED, errors.EXIT_USAGE) == (0, 1, 2)
    assert errors.UserError("x").exit_status == 1
    assert errors.ModelError("auth", "x").exit_status == 1
    assert errors.LockHeld("x").exit_status == 75
    assert errors.ConfigError("x").exit_status == 78
    assert errors.UserError("x", exit_status=2).exit_status == 2
    assert errors.UserError.exit_status == 1


def test_an_error_for_a_person_shows_its_hint_below():
    assert str(errors.UserError("what happened", hint="what to do")) == "what happened\nwhat to do"
    assert str(errors.UserError("what happened")) == "what happened"


def test_a_model_error_says_why_and_how_long_to_wait():
    error = errors.ModelError("rate_limit", "slow down", retry_after_s=3.5, status=429)

    assert (error.kind, error.retry_after_s, error.status) == ("rate_limit", 3.5, 429)


def test_errors_are_told_apart_by_what_to_do_next():
    assert issubclass(errors.ConfigError, errors.UserError)
    assert not issubclass(errors.PluginError, errors.UserError)
    assert not issubclass(errors.ToolFailed, errors.UserError)
    assert errors.PluginError("weather", "x").plugin == "weather"
    assert errors.RetryLater("x", after_s=2).after_s == 2
