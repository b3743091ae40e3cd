"""Terminal commands of plugins: what their functions return and raise (plugin contract §7.4)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes_agent.contracts.command import CliCommand
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.plugins.registration import run_cli_command
from hermes_agent.runtime.bridge import Bridge


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    made = Bridge()
    yield made
    made.close()


def run(bridge: Bridge, handler: Callable[..., Any] | None, *argv: str, own: Callable[..., Any] | None = None) -> int:
    def setup(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("word", nargs="?")
        if own is not None:
            parser.set_defaults(func=own)

    return run_cli_command(CliCommand("mine", "Mine", setup, handler), argv, bridge)


@pytest.mark.parametrize(("answer", "status"), [(None, 0), (3, 3), (True, 0), (False, 0), ("text", 0)])
def test_a_number_is_the_status_and_nothing_else_is(bridge: Bridge, answer: Any, status: int) -> None:
    assert run(bridge, lambda args: answer) == status


def test_the_handler_goes_before_what_the_setup_chose(bridge: Bridge) -> None:
    async def later(args: argparse.Namespace) -> int:
        return len(args.word)

    assert run(bridge, later, "four", own=lambda args: 9) == 4
    assert run(bridge, None, own=lambda args: 9) == 9
    assert run(bridge, None) == EXIT_USAGE


def test_what_a_plugin_raises_is_one_sentence_that_names_the_command(bridge: Bridge) -> None:
    def broken(*args: Any) -> None:
        raise KeyError("pot")

    with pytest.raises(UserError, match="`hermes mine`, a plugin's command, failed: KeyError: 'pot'"):
        run(bridge, broken)
    with pytest.raises(UserError, match="`hermes mine`, a plugin's command, could not be set up: KeyError"):
        run_cli_command(CliCommand("mine", "Mine", broken), [], bridge)


def test_a_plugin_may_end_the_process_with_a_status_of_its_own(bridge: Bridge) -> None:
    with pytest.raises(SystemExit, match="7"):
        run(bridge, lambda args: sys.exit(7))
