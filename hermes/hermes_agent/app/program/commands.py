"""`hermes self`: check the installed program, and show its pages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, print_json
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError

self_command = CliSubcommand("self", "check the installed program, and show its pages")
add_self = self_command.add


@self_command.action(
    "check",
    "compare what is installed with what it should be",
    argument("--fix", action="store_true", help="write outdated completion, man pages and the user unit again"),
    JSON,
    description="Compare files with the hashes of the installed package, packages with the required versions, and the "
    "completion, man pages and systemd units with those of this release. Exit status 1: something is wrong.",
)
def _check(args: Args) -> int:
    from hermes_agent.app.diagnosis import print_lines
    from hermes_agent.app.program.check import run_self_check, write_user_files
    from hermes_agent.app.program.inventory import describe_installation

    if args.fix:
        for path in write_user_files(os.environ, _write):
            print(f"written again: {path}", file=sys.stderr)
    lines = []
    for line in run_self_check(describe_installation(), os.environ):
        lines.append(line)
        if not args.json:
            print_lines([line], width=10)
    if args.json:
        print_json([line._asdict() for line in lines])
    return EXIT_FAILED if any(line.level == "wrong" for line in lines) else EXIT_OK


def _write(path: Path, text: str) -> None:
    from hermes_agent.app.setup.user_unit import explain_no_manager, systemctl, unit_path
    from hermes_agent.system.files import write_atomic

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text, mode=0o644)
    if path == unit_path() and not explain_no_manager():
        systemctl("daemon-reload")


@self_command.action(
    "docs",
    "show a page of the documentation",
    argument("page", nargs="?", default="", metavar="PAGE", help="such as docs/operator/models.md, or models"),
    argument("--path", action="store_true", help="print the path of its file"),
    description="Show a page of the documentation of this release, which is installed with the program; without PAGE, "
    "list the pages.",
)
def _show_page(args: Args) -> int:
    from hermes_agent.app.program.pages import find_page, list_pages, print_page

    if not args.page:
        for name, title in list_pages():
            print(f"{name}  {title}")
        return EXIT_OK
    found = find_page(args.page)
    if len(found) != 1:
        names = [name for name, _ in found]
        hint = f"Which one: {', '.join(names)}?" if names else "`hermes self docs` lists the pages."
        raise UserError(f"{len(names) or 'no'} pages have the name {args.page!r}", hint=hint, exit_status=EXIT_USAGE)
    if args.path:
        print(found[0][1])
    else:
        print_page(found[0][1])
    return EXIT_OK
