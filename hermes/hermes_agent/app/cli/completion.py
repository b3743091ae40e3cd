"""`hermes completion`: completion scripts and man pages, made from the parser itself.

shtab writes the scripts. They are static: a press of Tab starts no process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from hermes_agent import __version__
from hermes_agent.app.cli.command import Args, CliSubcommand, argument
from hermes_agent.app.cli.examples import examples_of
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.system.files import write_atomic

INSTALL_HINTS = {
    "bash": 'eval "$(hermes completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(hermes completion zsh)" in ~/.zshrc, after compinit',
    "fish": "hermes completion fish > ~/.config/fish/completions/hermes.fish",
}

PATHS = {"FILE": "file", "SRC": "file", "DIR": "directory", "FOLDER": "directory"}
"""Kinds of paths that complete an argument, by its metavar."""

completion_command = CliSubcommand(
    "completion",
    "print a completion script for the shell, or install it with the man pages",
    epilog="`hermes completion install` writes the script where the shell finds it, and man pages of all commands.\n"
    + "\n".join(f"{shell}: {text}" for shell, text in INSTALL_HINTS.items()),
    formatter_class=argparse.RawDescriptionHelpFormatter,
)
add_completion = completion_command.add


@completion_command.default(
    argument("shell", choices=[*sorted(INSTALL_HINTS), "install"]),
    argument("for_shell", nargs="?", metavar="FOR", help="with `install`: the shell; default: $SHELL"),
)
def _complete(args: Args) -> int:
    from hermes_agent.app.command_line import build_parser  # it imports this module

    if args.shell == "install":
        for line in install(args.for_shell or Path(os.environ.get("SHELL", "bash")).name, build_parser(), os.environ):
            print(line)
    else:
        print(completion_script(args.shell, build_parser()), end="")
    return EXIT_OK


def install(shell: str, parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> list[str]:
    """Write the completion of a shell and the man pages, and return what to tell the user.

    Raises:
        UserError: the shell has no completion here, or a file cannot be written.
    """
    if shell not in INSTALL_HINTS:
        known = ", ".join(sorted(INSTALL_HINTS))
        raise UserError(f"there is no completion for {shell}", hint=f"Name a shell: hermes completion install {known}.")
    home = Path.home()
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    script = {
        "bash": data / "bash-completion" / "completions" / "hermes",
        "zsh": data / "hermes" / "completion.zsh",
        "fish": config / "fish" / "completions" / "hermes.fish",
    }[shell]
    files = {script: completion_script(shell, parser)}
    files |= {data / "man" / "man1" / f"{name}.1": page for name, page in man_pages(parser).items()}
    for file, text in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, text, mode=0o644)
        except OSError as exc:
            raise UserError(f"{file}: {exc.strerror or exc}", hint="Nothing else was changed.") from exc
    lines = [f"completion for {shell}: {script}", f"man pages: {data / 'man' / 'man1'}/hermes*.1"]
    if shell == "zsh":
        lines.append(f'Add this line to ~/.zshrc, after compinit: eval "$(<{script})"')
    else:
        lines.append("It works in the next shell.")
    return lines


def shared_files(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the man pages and the completion scripts by their path below `share/` of an installation."""
    files = {
        "bash-completion/completions/hermes": completion_script("bash", parser),
        "zsh/site-functions/_hermes": completion_script("zsh", parser),
        "fish/vendor_completions.d/hermes.fish": completion_script("fish", parser),
    }
    return files | {f"man/man1/{name}.1": page for name, page in man_pages(parser).items()}


def man_pages(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the man pages in roff by name: `hermes`, and `hermes-config` for each subcommand."""
    pages = {"hermes": _man_page("hermes", parser, parser.description or "")}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, child in action.choices.items():
                pages[f"hermes-{name}"] = _man_page(f"hermes {name}", child, about.get(name, ""))
    return pages


def _man_page(name: str, parser: argparse.ArgumentParser, about: str) -> str:
    title = name.replace(" ", "-")
    lines = [f'.TH {title.upper()} 1 "" "hermes-agent {__version__}"', ".SH NAME", f"{title} \\- {_roff(about)}"]
    lines += [".SH SYNOPSIS", ".B " + _roff(name), "[\\fIoption\\fR ...]"]
    lines += [".SH OPTIONS", *_man_options(parser, name)]
    if examples := list(_man_examples(parser)):
        lines += [".SH EXAMPLES", ".nf", *map(_roff, examples), ".fi"]
    epilog = (parser.epilog or "").strip()
    if epilog:
        lines += [".SH NOTES", ".nf", *(_roff(line) or ".sp" for line in epilog.split("\n")), ".fi"]
    return "\n".join(lines) + "\n"


def _man_examples(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the examples of a command and of its actions; `hermes` has pages for its commands."""
    yield from examples_of(parser.prog)
    for action in parser._actions if " " in parser.prog else ():
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from _man_examples(child)


def _man_options(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for word, child in action.choices.items():
                yield from (f".SS {_roff(f'{name} {word}')}", _roff(about.get(word, "")))
                if name != "hermes":  # they have pages of their own
                    yield from _man_options(child, f"{name} {word}")
        elif action.help is not argparse.SUPPRESS:
            value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
            value = value if isinstance(value, str) else " ".join(value)
            names = ", ".join(f"\\fB{_roff(option)}\\fR" for option in action.option_strings)
            yield from (".TP", f"{names} \\fI{_roff(value)}\\fR".strip() if action.nargs != 0 else names)
            yield _roff((action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%"))


def _roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def completion_script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the script for `bash`, `zsh` or `fish`."""
    import shtab  # no other command needs it

    for action in _walk_actions(parser):
        kind = PATHS.get(str(action.metavar))
        if kind is not None:
            action.complete = shtab.FILE if kind == "file" else shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(parser, shell=shell, root_prefix="hermes")


def _walk_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of the parsers of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _walk_actions(child)
        else:
            yield action
