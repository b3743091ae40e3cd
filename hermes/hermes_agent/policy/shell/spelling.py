"""The spellings of a parsed command: without the directory of its program and the options before its subcommand."""

from __future__ import annotations

from collections.abc import Iterator

from hermes_agent.policy.shell.script import Command

__all__ = ["spellings", "subcommand"]

_VALUED: dict[str, frozenset[str]] = {
    "git": frozenset(
        "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source".split()  # noqa: SIM905
    ),
    "docker": frozenset({"-H", "--host", "-c", "--context", "--config", "-l", "--log-level"}),
    "podman": frozenset({"--root", "--runroot", "--connection", "-c", "--url", "--log-level"}),
    "kubectl": frozenset({"-n", "--namespace", "--context", "--kubeconfig", "-s", "--server", "--cluster", "--user"}),
    "npm": frozenset({"--prefix", "-w", "--workspace"}),
    "systemctl": frozenset({"-H", "--host", "-M", "--machine", "-t", "--type", "-p", "--property", "--root"}),
    "hermes": frozenset({"-p", "--profile"}),
}
"""Options before the subcommand that take the next argument."""


def subcommand(command: Command) -> tuple[str, ...]:
    """Return the arguments from the subcommand on; of git an alias given with `-c` is replaced."""
    args, valued = list(command.args), _VALUED.get(command.name, frozenset[str]())
    aliases: dict[str, str] = {}
    while args and args[0].startswith("-"):
        option = args.pop(0)
        if option == "--":
            break
        if option in valued and args:
            name, given, value = args.pop(0).partition("=")
            if command.name == "git" and option == "-c" and given and name.lower().startswith("alias."):
                aliases[name[len("alias.") :]] = value
    if args and args[0] in aliases:
        args[:1] = aliases[args[0]].split()
    return tuple(args)


def spellings(command: Command) -> Iterator[str]:
    """Yield the command as written, by the name of its program, and without the options before its subcommand."""
    yield command.text
    if command.name:
        yield " ".join((command.name, *command.args))
        yield " ".join((command.name, *subcommand(command)))
