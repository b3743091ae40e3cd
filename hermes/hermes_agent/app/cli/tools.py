"""`hermes tools`: which tools there are, and why one is or is not."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from hermes_agent.host import Host

__all__ = ["add", "loaded_host"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("tools", help="list the tools, and say why one is or is not there")
    commands = parser.add_subparsers(prog=parser.prog, dest="tools_command", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", aliases=["ls"], help="show every tool, its toolset and its owner")
    listing.add_argument("--json", action="store_true", help="print a list of objects")
    listing.set_defaults(run=_list)

    explain = commands.add_parser("explain", help="say why the model is shown a tool, or is not (exit status 1)")
    explain.add_argument("name", metavar="NAME", help="name of the tool")
    explain.set_defaults(run=_explain)


@contextmanager
def loaded_host() -> Iterator[Host]:
    """Give a host whose plugins are loaded as at a start, and end it afterwards."""
    from hermes_agent.app.start import start_host  # the plugins: nothing else of this module needs them

    host = start_host()
    try:
        yield host
    finally:
        asyncio.run(host.aclose())


def _list(args: argparse.Namespace) -> int:
    from hermes_agent.plugins.explain import tool_rows  # with the plugins

    with loaded_host() as host:
        rows = tool_rows(host.tools, host.agent.settings.disabled_toolsets)
    if args.json:
        print(json.dumps([row._asdict() for row in rows], indent=2, ensure_ascii=False))
        return EXIT_OK
    cells = [("NAME", "TOOLSET", "OWNER", "STATE"), *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    for line in cells:
        print("  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[3]]).rstrip())
    return EXIT_OK


def _explain(args: argparse.Namespace) -> int:
    from hermes_agent.plugins.explain import explain_tool  # with the plugins

    with loaded_host() as host:
        said = explain_tool(args.name, host.tools, host.plugins.records, host.agent.settings.disabled_toolsets)
    print(said)
    return EXIT_OK if said.there else EXIT_FAILED
