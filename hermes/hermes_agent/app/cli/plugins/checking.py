"""`hermes plugins check`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.config import Finding
    from hermes_agent.host import Host
    from hermes_agent.plugins.check_report import Report

__all__ = ["open_host", "run_check"]


def run_check(args: argparse.Namespace) -> int:
    """Load plugins in an empty home, in the sandbox, and print what would go wrong."""
    if args.report:
        _write(Path(args.report), json.dumps(_outcome(args)))
        return EXIT_OK
    report = _here(args) if args.no_sandbox else _apart(args)
    document = report.document(strict=args.strict)
    if args.out:
        _write(Path(args.out), document)
    if args.json:
        print(document, end="")
    text = report.render(strict=args.strict)
    if text:
        print(text, file=sys.stderr)
    if report.errors(strict=args.strict):
        return EXIT_FAILED
    if not args.json:
        print(f"{len(report.plugins)} plugin(s) checked, no conflicts.")
    return EXIT_OK


def _apart(args: argparse.Namespace) -> Report:
    """Check in the sandbox; what the plugins print goes to standard error."""
    from hermes_agent.plugins.apart import look
    from hermes_agent.plugins.check import read_outcome, refuse_no_plugins

    refuse_no_plugins([Path(directory) for directory in args.directories])
    looked = look([str(Path(directory).absolute()) for directory in args.directories], config=args.config or "")
    sys.stderr.write(looked.said)
    if looked.outcome is None:
        raise UserError(f"the check in the sandbox failed: {looked.how}")
    return read_outcome(looked.outcome)


def _outcome(args: argparse.Namespace) -> dict[str, Any]:
    """Check here, and return the report or the error as JSON types."""
    try:
        return _here(args).to_json()
    except UserError as exc:
        return {"user_error": str(exc), "exit_status": exc.exit_status}


def _here(args: argparse.Namespace) -> Report:
    from hermes_agent.plugins.check import check  # the tool pipeline

    return check(
        [Path(directory) for directory in args.directories],
        open_host,
        config=Path(args.config) if args.config else None,
        misnamed=_misnamed,
    )


def _misnamed(host: Host) -> list[Finding]:
    from hermes_agent.plugins.config_names import misnamed  # as in open_host

    return misnamed(host)


def open_host(home: Path) -> Host:
    """Return a host over an empty home that serves upstream's import names."""
    from hermes_agent.compat import import_hook  # both after the fork: the parent stays small
    from hermes_agent.host import Host

    host = Host.build(home)
    import_hook.install()
    return host


def _write(path: Path, text: str) -> None:
    from hermes_agent.io.files import write_atomic

    try:
        write_atomic(path, text)
    except OSError as exc:
        raise UserError(f"cannot write {path}: {exc.strerror}") from exc
