"""Run `hermes config …` as the command line does, through a parser of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes_agent.app.cli import config
from hermes_agent.core.errors import UserError

DATA = Path(__file__).parents[2] / "data" / "config"


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that `HERMES_HOME` names; no declared config."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.delenv("HERMES_DECLARED_CONFIG", raising=False)
    return tmp_path


@pytest.fixture
def hermes_config(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `hermes config ARGS`."""

    def run(*arguments: str) -> Ran:
        parser = argparse.ArgumentParser(prog="hermes")
        config.add_config(parser.add_subparsers())
        args = parser.parse_args(["config", *arguments])
        try:
            status = args.run(args)
        except UserError as error:
            captured = capsys.readouterr()
            return Ran(error.exit_status, captured.out, f"{captured.err}{error}\n")
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run
