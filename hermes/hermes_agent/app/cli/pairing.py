"""`hermes pairing`: people who ask to be let in on a chat platform, and those who were."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, print_json
from hermes_agent.core.errors import UserError

if TYPE_CHECKING:
    from hermes_agent.contracts.platform.pairing import PairingStore

__all__ = ["add_pairing"]

pairing_command = CliSubcommand("pairing", "let people in on chat platforms, and out again")
add_pairing = pairing_command.add

PLATFORM_ARGUMENT = argument("platform", metavar="PLATFORM")


@contextlib.contextmanager
def _pairing_store() -> Iterator[PairingStore]:
    """Give the store; a name that cannot be a platform's is the person's mistake."""
    from hermes_agent.contracts.platform.pairing import PairingStore

    try:
        yield PairingStore()
    except ValueError as error:
        raise UserError(str(error)) from error


@pairing_command.action(
    "list",
    "who waits, and who was let in",
    argument("--platform", metavar="NAME", help="only those of this platform"),
    JSON,
)
def _list_pairings(args: Args) -> int:
    with _pairing_store() as store:
        pending, approved = store.list_pending(args.platform), store.list_approved(args.platform)
    if args.json:
        return print_json({"pending": pending, "approved": approved})
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


@pairing_command.action(
    "approve",
    "let in the person who was given a code",
    PLATFORM_ARGUMENT,
    argument("code", metavar="CODE", help="the code, or the request's id in `hermes pairing list`"),
)
def _approve_user(args: Args) -> int:
    with _pairing_store() as store:
        person = store.approve_code(args.platform, args.code)
    if person is None:
        raise UserError(
            f"nobody of {args.platform} waits with this code",
            hint="A code holds for an hour; after five wrong ones the platform takes none for an hour."
            " `hermes pairing list` shows who waits.",
        )
    name = f" ({person['user_name']})" if person["user_name"] else ""
    print(f"{person['user_id']}{name} may talk to the agent on {args.platform}.")
    return 0


@pairing_command.action(
    "revoke",
    "take back what was approved",
    PLATFORM_ARGUMENT,
    argument("user", metavar="USER", help="the person's id in `hermes pairing list`"),
)
def _revoke_user(args: Args) -> int:
    with _pairing_store() as store:
        gone = store.revoke(args.platform, args.user)
    if not gone:
        raise UserError(
            f"{args.user} was not let in on {args.platform} by a code",
            hint="`hermes pairing list` shows who was. Allow lists are variables and keys of the config.",
        )
    print(f"{args.user} may no longer talk to the agent on {args.platform}.")
    return 0


@pairing_command.action(
    "clear-pending",
    "void the codes that wait",
    argument("platform", metavar="PLATFORM", nargs="?", help="only those of this platform"),
)
def _clear_pairings(args: Args) -> int:
    with _pairing_store() as store:
        count = store.clear_pending(args.platform)
    print(f"{count} code{'' if count == 1 else 's'} voided.")
    return 0
