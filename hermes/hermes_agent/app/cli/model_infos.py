"""`hermes model list PROVIDER` and `hermes model info NAME`: what a provider says about its models."""

from __future__ import annotations

import argparse
import json
import sys

from hermes_agent.app.cli.tools import loaded_host
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

__all__ = ["add_info", "list_of"]


def add_info(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `info`."""
    info = actions.add_parser("info", help="what is known of a model: context, pictures, tools, price")
    info.add_argument("name", metavar="NAME", nargs="?", default="", help="model (default: the configured one)")
    info.add_argument("--provider", metavar="PROVIDER", default="", help="whose it is (default: the configured one)")
    info.add_argument("--refresh", action="store_true", help="ask the provider, however young the kept list is")
    info.add_argument("--json", action="store_true", help="print JSON")
    info.set_defaults(run=_info)


def list_of(args: argparse.Namespace) -> int:
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
        print(json.dumps([info._asdict() for info in found], indent=2))
        return EXIT_OK
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


def _info(args: argparse.Namespace) -> int:
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
        print(json.dumps({"provider": selection.provider, **info._asdict()}, indent=2))
        return EXIT_OK
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
