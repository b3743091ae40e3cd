"""`hermes self`, `hermes update` and `hermes uninstall`: the installed program."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.app.cli.command import (
    JSON,
    YES,
    Args,
    CliSubcommand,
    activity,
    argument,
    ensure_home,
    exclusive,
    print_json,
)
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError
from hermes_agent.system.installation import SHIPPED

if TYPE_CHECKING:
    from hermes_agent.app.program.release import ReleaseSource
    from hermes_agent.app.program.update import ProgramUpdate

_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)

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
    from hermes_agent.app.cli.command import report_checks
    from hermes_agent.app.program.check import run_self_check, write_user_files
    from hermes_agent.app.program.inventory import describe_installation

    if args.fix:
        for path in write_user_files(os.environ, _write):
            print(f"written again: {path}", file=sys.stderr)
    return report_checks(run_self_check(describe_installation(), os.environ), as_json=args.json)


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
    if not args.page:
        for name, title in _list_pages():
            print(f"{name}  {title}")
        return EXIT_OK
    found = _find_page(args.page)
    if len(found) != 1:
        names = [name for name, _ in found]
        hint = f"Which one: {', '.join(names)}?" if names else "`hermes self docs` lists the pages."
        raise UserError(f"{len(names) or 'no'} pages have the name {args.page!r}", hint=hint, exit_status=EXIT_USAGE)
    if args.path:
        print(found[0][1])
    else:
        _print_page(found[0][1])
    return EXIT_OK


def _list_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the title of each page, such as `docs/operator/models.md`.

    Raises:
        UserError: the pages are not installed.
    """
    for name, path in _pages().items():
        title = _TITLE.search(path.read_text(encoding="utf-8"))
        yield name, title[1] if title is not None else ""


def _find_page(name: str) -> list[tuple[str, Path]]:
    """Return the pages with this name, else those that end with it, else those that contain it.

    Raises:
        UserError: the pages are not installed.
    """
    pages = _pages()
    wanted = name.partition("#")[0].strip("/").removesuffix(".md").lower()
    known = {path: path.removesuffix(".md").lower() for path in pages}
    for fits in (lambda own: own == wanted, lambda own: own.endswith(f"/{wanted}"), lambda own: wanted in own):
        found = [(path, pages[path]) for path, own in known.items() if fits(own)]
        if found:
            return found
    return []


def _print_page(path: Path) -> None:
    """Print a page: formatted at a terminal, as it is into a pipe."""
    text = path.read_text(encoding="utf-8")
    if not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.console import Console  # only for a terminal
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))


def _pages() -> dict[str, Path]:
    found = {str(path.relative_to(SHIPPED)): path for path in _files(SHIPPED)}
    if not found:
        raise UserError(f"the pages are not installed: {SHIPPED} is empty", hint="`hermes self check` says more.")
    return found


def _files(folder: Path) -> Iterator[Path]:
    """Yield the Markdown files; a source tree has links to its folders, which `rglob` does not follow."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _files(path)
        elif path.suffix == ".md":
            yield path


@self_command.action("describe", "print the facts of this release as JSON: contract, settings, tables of state.db")
def _describe(args: Args) -> int:
    from hermes_agent.app.program.release import describe_release  # imports every module with tables

    return print_json(describe_release())


update_command = CliSubcommand(
    "update",
    "install a newer version of the program, or go back to the previous one",
    description="Show what a newer source tree or wheel changes, install it next to the present version, switch to it, "
    "restart the daemon and run the doctor. If the daemon does not get ready, the present version comes back.",
    epilog="Without PATH the tree is used that the program was installed from. On NixOS the command prints what to "
    "write.",
)
add_update = update_command.add


@update_command.default(
    argument("path", nargs="?", default="", metavar="PATH", help="a source tree or a wheel"),
    exclusive(
        argument("--check", "--dry-run", action="store_true", help="show what would change, and change nothing"),
        argument("--rollback", action="store_true", help="go back to the version before the last update"),
    ),
    YES,
)
def _update(args: Args) -> int:
    from hermes_agent.app.program.inventory import describe_installation
    from hermes_agent.app.program.release import find_source
    from hermes_agent.app.program.update import ProgramUpdate, describe_changes, explain_other_owner

    program, home = describe_installation(), ensure_home()
    if args.rollback:
        if other := explain_other_owner(program, None):
            raise UserError("there is no previous version of this program here", hint=other)
        print(f"The previous version is in place: {ProgramUpdate(program, home).roll_back()}")
        return EXIT_OK
    if not args.path and program.source is None:
        if other := explain_other_owner(program, None):
            print(other)
            return EXIT_OK if args.check else EXIT_FAILED
        hint = "Name a checkout or a wheel: hermes update PATH"
        raise UserError("the source of this program is unknown", hint=hint, exit_status=EXIT_USAGE)
    source = find_source(Path(args.path) if args.path else program.source or Path())
    with activity("reading what changes"):
        changes = list(describe_changes(source, home))
    for line in changes:
        print(line)
    if other := explain_other_owner(program, source):
        print(other)
        return EXIT_OK if args.check else EXIT_FAILED
    if args.check:
        return EXIT_OK
    return _install(ProgramUpdate(program, home), source, yes=args.yes)


def _install(update: ProgramUpdate, source: ReleaseSource, *, yes: bool) -> int:
    from hermes_agent.app.plugins.terminal_io import confirmed

    unasked = "`hermes update --yes` installs it"
    if not confirmed("Install it?", "installed", unasked, yes=yes, default=True):
        return EXIT_FAILED
    for line in update.install(source):
        print(line)
    previous = update.environments.previous()
    print("The new version is in place. `hermes update --rollback` goes back.")
    if previous is not None:
        print(f"If `hermes` does not start: {previous}/bin/python -m hermes_agent update --rollback")
    return EXIT_OK


uninstall_command = CliSubcommand(
    "uninstall",
    "remove the program, and list what stays",
    description="Remove the program, its completion, man pages and the service of this user. The home stays, unless "
    "--purge exports and removes it.",
)
add_uninstall = uninstall_command.add


@uninstall_command.default(
    argument("--purge", action="store_true", help="also export the home to an archive, and remove it"),
    argument(
        "--export", metavar="FILE", default="", help="the archive; default: hermes-TIME.tar.gz in your home folder"
    ),
    argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing"),
    YES,
)
def _uninstall(args: Args) -> int:
    import time

    from hermes_agent.app.plugins.terminal_io import confirmed
    from hermes_agent.app.program.inventory import describe_installation
    from hermes_agent.app.program.uninstall import carry_out, make_plan, plan_lines
    from hermes_agent.config.home import root_home

    home = root_home()
    archive = None
    if args.purge and home.is_dir():
        default = Path.home() / f"hermes-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz"
        archive = Path(args.export).expanduser().absolute() if args.export else default
        if archive.exists() or archive.is_relative_to(home):
            problem = "it exists" if archive.exists() else "it would be in the home that is removed"
            raise UserError(f"{archive} cannot be the archive: {problem}", exit_status=EXIT_USAGE)
    elif args.export:
        raise UserError("--export needs --purge, and a home to export", exit_status=EXIT_USAGE)
    plan = make_plan(describe_installation(), home, os.environ, purges=archive is not None)
    if args.dry_run or not args.yes:
        for line in plan_lines(plan, archive):
            print(line)
    if args.dry_run:
        return EXIT_OK
    if not confirmed("Remove it?", "removed", "`hermes uninstall --yes` removes it", yes=args.yes):
        return EXIT_FAILED
    return carry_out(plan, archive, lambda line: print(line, flush=True))
