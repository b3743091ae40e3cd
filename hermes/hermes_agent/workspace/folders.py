"""Folders outside of the working directory: written after one question a folder, by commands and file tools alike.

The answer `session` covers the folder and what is below it until the session ends, for every tool; `always` adds it to
`terminal.writable_paths`. What steers other programs keeps its own question, in such a folder too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hermes_agent.contracts.tool import ApprovalRequest
from hermes_agent.core.errors import ToolFailed
from hermes_agent.workspace import arguments
from hermes_agent.workspace.circumstances import ToolContext
from hermes_agent.workspace.output import printable
from hermes_agent.workspace.places import PathRules, is_inside

__all__ = ["WRITE_TO", "FolderAnswer", "folder_answer", "requested_folder", "folder_request", "widen_to_folder"]

WRITE_TO: dict[str, Any] = {
    "type": "string",
    "description": (
        "Folder outside the working directory, as ~/Documents, that this command writes in, and in no other; the user"
        " is asked once for each folder."
    ),
}


class FolderAnswer(NamedTuple):
    """What an answer for a folder covers."""

    rule: str
    also: tuple[str, ...]
    """Rules of the folders above it, whose answers cover it, too."""


def requested_folder(here: ToolContext, args: Mapping[str, Any]) -> str:
    """Return the folder of a call that writes there, resolved; empty where it names none, or the working directory.

    Raises:
        ToolFailed: commands cannot write there, whoever is asked.
    """
    given = arguments.parse_text(args, "write_to", default="", may_be_empty=True)
    if not given:
        return ""
    folder = here.resolve(given)
    if is_inside(folder, here.cwd()) and here.cwd() != here.places.user_home:
        return ""
    if not Path(folder).is_dir():
        raise ToolFailed(f"`write_to` is {given}, and there is no such folder")
    if not (_is_visible(here.places, folder) or here.places.is_writable(folder)):
        raise ToolFailed(
            f"`write_to` is {given}: only visible folders in the home directory, and what the operator adds with"
            " `terminal.sandbox_paths` or `terminal.writable_paths`, can be written from the sandbox"
        )
    return folder


def folder_answer(places: PathRules, folder: str) -> FolderAnswer | None:
    """Return what an answer for a folder covers; None where each file is asked about: no folder of the user's."""
    if not _is_visible(places, folder):
        return None
    above = [folder]
    while _is_visible(places, parent := os.path.dirname(above[-1])):  # noqa: PTH120 - text, as everywhere here
        above.append(parent)
    return FolderAnswer(_rule(folder), tuple(map(_rule, above[1:])))


def folder_request(here: ToolContext, folder: str, what: FolderAnswer, command: str) -> ApprovalRequest:
    """Return the question whether commands may write in a folder."""
    return ApprovalRequest(
        "terminal",
        f"let commands write in {printable(folder)}",
        f"{printable(command)}\nwrites in {printable(folder)}",
        what.rule,
        keep=partial(here.rules.allow_writing, folder),
        also=what.also,
    )


def widen_to_folder(here: ToolContext, asked: ApprovalRequest, targets: Sequence[str]) -> ApprovalRequest:
    """Return a file tool's question so that its answers cover the folder of the files, where that is one of the user's.

    A folder that is not there yet counts, too.
    """
    if here.remote_files() is not None:
        return asked
    folder = os.path.commonpath([os.path.dirname(target) for target in targets])  # noqa: PTH120 - text
    what = folder_answer(here.places, folder)
    if what is None:
        return asked
    summary = f"{asked.summary}, in the folder {printable(folder)}"
    keep = partial(here.rules.allow_writing, folder)
    return replace(asked, summary=summary, rule_key=what.rule, also=what.also, keep=keep)


def _rule(folder: str) -> str:
    return f"write in {folder}"


def _is_visible(places: PathRules, folder: str) -> bool:
    """Say whether it is in a folder of the home that is not hidden, or in one that the operator adds."""
    home = places.user_home
    if home != "/" and folder != home and is_inside(folder, home):
        name = folder[len(home) + 1 :]
        if not name.startswith(".") and places.unlisted_reason(folder) is None:
            return True
    return any(is_inside(folder, os.path.realpath(place)) for place in places.added)
