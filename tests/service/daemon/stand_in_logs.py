"""`hermes logs` alone, without the rest of the command line."""

from __future__ import annotations

import argparse
import sys

from hermes_agent.app.cli import logs
from hermes_agent.core.errors import UserError

parser = argparse.ArgumentParser()
logs.add(parser.add_subparsers())
arguments = parser.parse_args(["logs", *sys.argv[1:]])
try:
    status = arguments.run(arguments)
except UserError as exc:
    print(exc, file=sys.stderr)
    status = exc.exit_status
raise SystemExit(status)
