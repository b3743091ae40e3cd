"""`hermes completion bash|zsh|fish`: a script for the shell, made from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from hermes_agent.app.cli.command import Args, CliSubcommand, argument

__all__ = ["add_completion", "completion_script"]

INSTALL_HINTS = {
    "bash": 'eval "$(hermes completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(hermes completion zsh)" in ~/.zshrc, after compinit',
    "fish": "hermes completion fish > ~/.config/fish/completions/hermes.fish",
}

BASH = """\
_hermes() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path="" word candidates
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ $word == -* ]] || path="${{path:+$path }}$word"
  done
  while :; do
    case "$path" in
{cases}
      *) [[ $path == *" "* ]] && path="${{path% *}}" && continue; candidates="" ;;
    esac
    break
  done
  COMPREPLY=($(compgen -W "$candidates" -- "$current"))
}}
complete -o default -F _hermes hermes
"""


completion_command = CliSubcommand(
    "completion",
    "print a completion script for the shell",
    epilog="\n".join(f"{shell}: {text}" for shell, text in INSTALL_HINTS.items()),
    formatter_class=argparse.RawDescriptionHelpFormatter,
)
add_completion = completion_command.add


@completion_command.default(argument("shell", choices=sorted(INSTALL_HINTS)))
def _print_completion(args: Args) -> int:
    from hermes_agent.app.cli_main import build_parser  # it imports this module

    print(completion_script(args.shell, build_parser()), end="")
    return 0


def completion_script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the script for `bash`, `zsh` or `fish`."""
    commands = dict(_walk_parser(parser, ""))
    if shell == "fish":
        return "".join(_fish(path, words) for path, words in commands.items())
    cases = "\n".join(f'      "{path}") candidates="{" ".join(words)}" ;;' for path, words in commands.items())
    text = BASH.format(cases=cases)
    return f"autoload -U +X bashcompinit && bashcompinit\n{text}" if shell == "zsh" else text


def _walk_parser(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield every command (`""`, `config`, `config set`) with the words that may follow it."""
    words: list[str] = []
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below += action.choices.items()
            words += action.choices
        elif action.option_strings:
            words += [o for o in action.option_strings if o.startswith("--")]
        elif action.choices:
            words += [str(c) for c in action.choices]
    yield path, words
    for name, child in below:
        yield from _walk_parser(child, f"{path} {name}".strip())


def _fish(path: str, words: list[str]) -> str:
    names = path.split()
    seen = " and ".join(f"__fish_seen_subcommand_from {n}" for n in names) or "__fish_use_subcommand"
    return f"complete -c hermes -n '{seen.replace(' and ', '; and ')}' -f -a '{' '.join(words)}'\n"
