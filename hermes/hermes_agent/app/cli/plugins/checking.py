"""`hermes plugins check`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.config import ConfigFinding
    from hermes_agent.host import Host
    from hermes_agent.plugins.check_report import PluginCheckReport

__all__ = ["open_host", "run_check"]


def run_check(args: argparse.Namespace) -> int:
    """Load plugins in an empty home, in the sandbox, and print what would go wrong."""
    if args.report:
        _write(Path(args.report), json.dumps(_outcome(args)))
        return EXIT_OK
    report = _check_here(args) if args.no_sandbox else _check_in_sandbox(args)
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


def _check_in_sandbox(args: argparse.Namespace) -> PluginCheckReport:
    """Check in the sandbox; what the plugins print goes to standard error."""
    from hermes_agent.plugins.apart import check_in_sandbox
    from hermes_agent.plugins.check import check_directories, read_outcome

    check_directories([Path(directory) for directory in args.directories])
    looked = check_in_sandbox(
        [str(Path(directory).absolute()) for directory in args.directories], config=args.config or ""
    )
    sys.stderr.write(looked.output)
    if looked.outcome is None:
        raise UserError(f"the check in the sandbox failed: {looked.how}")
    return read_outcome(looked.outcome)


def _outcome(args: argparse.Namespace) -> dict[str, Any]:
    """Check here, and return the report or the error as JSON types."""
    try:
        return _check_here(args).to_json()
    except UserError as exc:
        return {"user_error": str(exc), "exit_status": exc.exit_status}


def _check_here(args: argparse.Namespace) -> PluginCheckReport:
    from hermes_agent.plugins.check import check  # the tool pipeline

    return check(
        [Path(directory) for directory in args.directories],
        open_host,
        config=Path(args.config) if args.config else None,
        misnamed=_unknown_names,
    )


def _unknown_names(host: Host) -> list[ConfigFinding]:
    from hermes_agent.plugins.config_names import find_unknown_names  # as in open_host

    return find_unknown_names(host)


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
