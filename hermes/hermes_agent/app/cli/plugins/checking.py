"""`hermes plugins check`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.config import Finding
    from hermes_agent.host import Host

__all__ = ["open_host", "run_check"]


def run_check(args: argparse.Namespace) -> int:
    """Load plugins in an empty home and print what would go wrong."""
    from hermes_agent.plugins.check import check  # the tool pipeline

    report = check(
        [Path(directory) for directory in args.directories],
        open_host,
        config=Path(args.config) if args.config else None,
        misnamed=_misnamed,
    )
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


def _misnamed(host: Host) -> list[Finding]:
    from hermes_agent.host.config_names import misnamed  # as in open_host

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
