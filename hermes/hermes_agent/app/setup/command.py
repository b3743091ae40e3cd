"""The command `hermes setup` and its flags."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hermes_agent.app.cli.command import Args, CliSubcommand, activity, argument, ensure_home, exclusive
from hermes_agent.config import home_paths
from hermes_agent.core.errors import EXIT_OK, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from hermes_agent.app.setup.questions import Questions
    from hermes_agent.app.setup.steps import Flags
    from hermes_agent.host import Host

QUESTION = "Say hello in one short sentence."

setup_command = CliSubcommand(
    "setup",
    "set up a model, the sandbox, chat platforms and a service; ends with a first answer",
    description="Set up the agent step by step. Each answer may be given by a flag; at a terminal the others are asked "
    "for. An interrupted setup continues with its answers. On a host that Nix configures it prints the settings "
    "to declare.",
    epilog="Example without questions: "
    'echo "$KEY" | hermes setup --provider openrouter --model NAME --key-stdin --no-platform --service none',
)
add_setup = setup_command.add


@setup_command.default(
    argument("--provider", metavar="NAME", default="", help="provider of the model (see docs/operator/models.md)"),
    argument("--base-url", metavar="URL", default="", help="address of an OpenAI-compatible server"),
    argument("--model", metavar="NAME", default="", help="name of the model"),
    argument("--key-stdin", action="store_true", help="read the provider's key from standard input"),
    exclusive(
        argument("--store-key", dest="stores_key", action="store_true", default=None, help="copy the key into .env"),
        argument("--no-store-key", dest="stores_key", action="store_false", help="leave the key where it is"),
    ),
    exclusive(
        argument("--platform", dest="platforms", metavar="NAME", action="append", help="set up this chat platform"),
        argument("--no-platform", dest="no_platform", action="store_true", help="set up no chat platform"),
    ),
    argument(
        "--service",
        choices=("user", "none"),
        default="",
        help="user: run as a service of this user, at login, or at boot after `loginctl enable-linger`; none: do not",
    ),
    argument(
        "--import",
        dest="imported",
        choices=("upstream", "openclaw", "none"),
        default="",
        help="copy the home of another program that is found, or none",
    ),
    argument("--remove-service", action="store_true", help="stop and remove the service, and do nothing else"),
    argument("--question", metavar="TEXT", default=QUESTION, help="the first question (default: %(default)s)"),
    argument("--no-question", action="store_true", help="ask nothing at the end"),
    argument("--no-input", action="store_true", help="ask the user nothing, even at a terminal"),
)
def _set_up(args: Args) -> int:
    import asyncio  # not for `hermes --help`

    from hermes_agent.app.setup.found_homes import offer_import, refuse_upstream_home
    from hermes_agent.app.setup.questions import Questions
    from hermes_agent.app.setup.steps import Flags, read_key
    from hermes_agent.app.start import start_host

    if args.remove_service:
        from hermes_agent.app.setup.user_unit import remove_unit

        gone = remove_unit()
        print("There is no service of this user." if gone is None else f"The service is stopped; {gone} is removed.")
        return EXIT_OK
    platforms = () if args.no_platform else None if args.platforms is None else tuple(args.platforms)
    if args.base_url and not args.base_url.startswith(("http://", "https://")):
        raise UserError(f"--base-url: {args.base_url!r} is no http or https address", exit_status=EXIT_USAGE)
    key = read_key() if args.key_stdin else ""
    flags = Flags(args.provider, args.base_url, args.model, key, args.stores_key, platforms, args.service)
    home, questions = ensure_home(), Questions(is_allowed=not (args.no_input or args.key_stdin))
    refuse_upstream_home(home)
    try:
        offer_import(home, args.imported, questions)
    except (KeyboardInterrupt, EOFError):
        return _interrupted()
    with activity("loading the agent and its plugins"):
        host = start_host()  # after the import, which brings settings and keys
    question, status = "", EXIT_OK
    try:
        is_written = _run(host, flags, questions)
        question = args.question if is_written and not args.no_question else ""
    except (KeyboardInterrupt, EOFError):
        status = _interrupted()
    finally:
        answered = asyncio.run(_ask_and_close(host, question))
    return status or answered


def _interrupted() -> int:
    print("\nSetup is interrupted; `hermes setup` continues with the answers so far.", file=sys.stderr)
    return 130


def _run(host: Host, flags: Flags, questions: Questions) -> bool:
    """Run the steps of the setup; return False if Nix configures the home, so that nothing is written."""
    from hermes_agent.app.setup.discovery import discover
    from hermes_agent.app.setup.steps import Setup, nix_lines

    found = discover(host)
    print("Found: " + ("; ".join(found.lines()) or "no key, no model server on this machine"))
    setup = Setup(host, found, flags, questions)
    plan = setup.choose_model()
    where = home_paths(host.home)
    if where.declared is not None:
        print(nix_lines(plan, flags.platforms or (), where.declared))
        print("\nThe first answer comes after `nixos-rebuild switch`.")
        setup.finish()
        return False
    setup.store_model(plan)
    print("Commands:")
    setup.show_sandbox()
    setup.set_up_platforms()
    setup.set_up_service()
    setup.finish()
    return True


async def _ask_and_close(host: Host, question: str) -> int:
    """Ask the first question, if any, and close the host on the same event loop; return the exit status."""
    try:
        if not question:
            return EXIT_OK
        from hermes_agent.console.output import answer_once

        print(f"\n> {question}")
        status = await answer_once(host.agent, host.slash, question)
        if status == EXIT_OK:
            print("\nThe agent is set up. `hermes` opens a conversation, `hermes doctor` checks everything.")
        return status
    finally:
        await host.aclose()
