"""`hermes proposals`: show, accept and reject changes that the agent proposes."""

from __future__ import annotations

from hermes_agent.app.cli.command import JSON, YES, Args, CliSubcommand, argument, loaded_host, print_json
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

proposals_command = CliSubcommand(
    "proposals",
    "changes that the agent proposes: list, show, accept, reject",
    epilog="Nothing of a proposal takes effect before it is accepted (docs/operator/learning.md).",
)
add_proposals = proposals_command.add
ID = argument("id", metavar="ID", help="id, or its beginning")


@proposals_command.default(JSON)
def _default(args: Args) -> int:
    return _list(args) or EXIT_OK


@proposals_command.action("list", "the proposals that wait", JSON)
def _list(args: Args) -> int:
    from hermes_agent.app.plugins.terminal_io import printable
    from hermes_agent.tools.proposals import Proposals, line

    with loaded_host() as host:
        waiting = host.service(Proposals).all()
    if args.json:
        return print_json([{**each._asdict(), "signature": None} for each in waiting])
    for each in waiting:
        print(printable(line(each)))
    if not waiting:
        print("No proposal waits.")
    return EXIT_OK


@proposals_command.action("show", "what a proposal changes, as a diff", ID, JSON)
def _show(args: Args) -> int:
    from hermes_agent.tools.proposals import Proposals

    with loaded_host() as host:
        proposals = host.service(Proposals)
        proposal = proposals.find(args.id)
        text = _plain(proposals.show(proposal))
    if args.json:
        return print_json({**proposal._asdict(), "signature": None, "diff": text})
    print(text)
    return EXIT_OK


@proposals_command.action("accept", "show a proposal, ask, and make its change", ID, YES)
def _accept(args: Args) -> int:
    from hermes_agent.app.plugins.terminal_io import confirmed
    from hermes_agent.tools.proposals import Proposals

    with loaded_host() as host:
        proposals = host.service(Proposals)
        proposal = proposals.find(args.id)
        print(_plain(proposals.show(proposal)))
        if not confirmed("Make this change?", "changed", "`--yes` makes the change", yes=args.yes):
            return EXIT_FAILED
        print(proposals.accept(proposal))
    return EXIT_OK


@proposals_command.action("reject", "delete a proposal", ID)
def _reject(args: Args) -> int:
    from hermes_agent.tools.proposals import Proposals

    with loaded_host() as host:
        proposals = host.service(Proposals)
        proposal = proposals.find(args.id)
        proposals.reject(proposal)
    print(f"Rejected: {_plain(proposal.title)}.")
    return EXIT_OK


def _plain(text: str) -> str:
    """Return a text of the agent without control characters and without invisible ones."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in text)
