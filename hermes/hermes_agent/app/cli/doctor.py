"""`hermes doctor`: whether everything is there that an answer needs, from the config to the model."""

from __future__ import annotations

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, exclusive, print_json
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

__all__ = ["add_doctor"]

doctor_command = CliSubcommand("doctor", "look for what is wrong, and say how to put it right")
add_doctor = doctor_command.add


@doctor_command.default(
    exclusive(
        argument("--offline", action="store_true", help="do not ask the model's server"),
        argument("--ask", action="store_true", help="ask the model a question, and show how long it takes to answer"),
    ),
    JSON,
)
def _run_doctor(args: Args) -> int:
    from hermes_agent.app.checkup import run_checks  # the plugins, the config and the model load here
    from hermes_agent.app.cli.plugins.doctor import print_lines

    lines = []
    for line in run_checks(offline=args.offline, ask=args.ask):
        lines.append(line)
        if not args.json:
            print_lines([line], width=10)
    if args.json:
        print_json([line._asdict() for line in lines])
    return EXIT_FAILED if any(line.level == "wrong" for line in lines) else EXIT_OK
