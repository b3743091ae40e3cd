"""`hermes pairing`: people who ask to be let in on a chat platform, and those who were."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["add"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("pairing", help="let people in on chat platforms, and out again")
    actions = parser.add_subparsers(prog=parser.prog, metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="who waits, and who was let in")
    listing.add_argument("--platform", metavar="NAME", help="only those of this platform")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)

    approve = actions.add_parser("approve", help="let in the person who was given a code")
    approve.add_argument("platform", metavar="PLATFORM")
    approve.add_argument("code", metavar="CODE", help="the code, or the request's id in `hermes pairing list`")
    approve.set_defaults(run=_approve)

    revoke = actions.add_parser("revoke", help="take back what was approved")
    revoke.add_argument("platform", metavar="PLATFORM")
    revoke.add_argument("user", metavar="USER", help="the person's id in `hermes pairing list`")
    revoke.set_defaults(run=_revoke)

    clear = actions.add_parser("clear-pending", help="void the codes that wait")
    clear.add_argument("platform", metavar="PLATFORM", nargs="?", help="only those of this platform")
    clear.set_defaults(run=_clear)


def _store() -> Any:
    from hermes_agent.contracts.platform.pairing import PairingStore

    return PairingStore()


def _list(args: argparse.Namespace) -> int:
    with _named_platforms():
        pending, approved = _store().list_pending(args.platform), _store().list_approved(args.platform)
    if args.json:
        print(json.dumps({"pending": pending, "approved": approved}, indent=2, ensure_ascii=False))
        return 0
    if not pending and not approved:
        print("Nobody waits, and nobody was let in.")
    if pending:
        print("Waiting (approve with: hermes pairing approve PLATFORM CODE):")
    for one in pending:
        name = f" {one['user_name']}" if one["user_name"] else ""
        print(
            f"  {one['platform']:<12} {one['user_id']}{name}  request {one['request_id']}, {one['age_minutes']} min ago"
        )
    if approved:
        print("Let in:")
    for one in approved:
        name = f" {one['user_name']}" if one.get("user_name") else ""
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.get("approved_at", 0)))
        print(f"  {one['platform']:<12} {one['user_id']}{name}  since {since}")
    return 0


def _approve(args: argparse.Namespace) -> int:
    from hermes_agent.core.errors import UserError

    with _named_platforms():
        person = _store().approve_code(args.platform, args.code)
    if person is None:
        raise UserError(
            f"nobody of {args.platform} waits with this code",
            hint="A code holds for an hour; after five wrong ones the platform takes none for an hour."
            " `hermes pairing list` shows who waits.",
        )
    name = f" ({person['user_name']})" if person["user_name"] else ""
    print(f"{person['user_id']}{name} may talk to the agent on {args.platform}.")
    return 0


def _revoke(args: argparse.Namespace) -> int:
    from hermes_agent.core.errors import UserError

    with _named_platforms():
        gone = _store().revoke(args.platform, args.user)
    if not gone:
        raise UserError(
            f"{args.user} was not let in on {args.platform} by a code",
            hint="`hermes pairing list` shows who was. Allow lists are variables and keys of the config.",
        )
    print(f"{args.user} may no longer talk to the agent on {args.platform}.")
    return 0


def _clear(args: argparse.Namespace) -> int:
    with _named_platforms():
        count = _store().clear_pending(args.platform)
    print(f"{count} code{'' if count == 1 else 's'} voided.")
    return 0


@contextlib.contextmanager
def _named_platforms() -> Iterator[None]:
    """A name that cannot be a platform's is the person's mistake."""
    from hermes_agent.core.errors import UserError

    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error
