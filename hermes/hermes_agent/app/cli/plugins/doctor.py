"""`hermes plugins doctor`: one line for each plugin, and for each thing around plugins that is wrong."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path

from hermes_agent.app.cli.plugins.ground import LazySecrets
from hermes_agent.app.cli.plugins.showing import printable
from hermes_agent.config import hermes_home
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK
from hermes_agent.plugins.debug_log import quiet_or_debug
from hermes_agent.plugins.doctor import Diagnosis, run_plugin_checks

__all__ = ["print_lines", "run_doctor"]

SIGNS = {"ok": "✓", "idle": "○", "note": "!", "wrong": "✗"}


def run_doctor(args: argparse.Namespace) -> int:
    """Print the findings; exit status 1 when something is wrong."""
    quiet_or_debug(os.environ)
    home = hermes_home()
    lines = run_plugin_checks(home, os.environ, Path.cwd(), LazySecrets(home))
    if args.json:
        print(json.dumps([line._asdict() for line in lines], indent=2, ensure_ascii=False))
    else:
        print_lines(lines, width=max((len(line.subject) for line in lines if len(line.subject) <= 40), default=0))
        if not lines:
            print(f"No plugins. Those of this home go to {home}/plugins/.")
    return EXIT_FAILED if any(line.level == "wrong" for line in lines) else EXIT_OK


def print_lines(lines: Iterable[Diagnosis], *, width: int) -> None:
    """Print findings, one a line, for a person.

    Args:
        width: of the column of subjects, in characters.
    """
    for line in lines:
        remedy = f" — {line.remedy}" if line.remedy else ""
        print(f"{SIGNS[line.level]} {printable(line.subject):<{width}}  {printable(line.text + remedy)}")
