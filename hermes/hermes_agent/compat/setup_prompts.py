"""Upstream's prompts and messages at a terminal, and the setup of a memory provider.

At the end of input a question is answered with its default. Source: plugin contract §11.1, §11.2.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_agent.compat.agent import host
from hermes_agent.compat.config import save_env_value
from hermes_agent.config import hermes_home
from hermes_agent.config.edit import set_value
from hermes_agent.core.errors import UserError
from hermes_agent.core.text import has_colour
from hermes_agent.memory.provider_session import SetupField, configure_provider

CANCELLED = -1
"""Result of `choose` if the user cancels."""


class Colors:
    """Escape sequences for a terminal."""

    RESET = "\033[0m"
    BOLD = "\033[1m"
    DIM = "\033[2m"
    RED = "\033[31m"
    GREEN = "\033[32m"
    YELLOW = "\033[33m"
    BLUE = "\033[34m"
    MAGENTA = "\033[35m"
    CYAN = "\033[36m"


def color(text: str, *codes: str) -> str:
    """Return `text` in the given colours, or unchanged if there is no terminal or `NO_COLOR` is set."""
    if not codes or not has_colour(sys.stdout):
        return text
    return f"{''.join(codes)}{text}{Colors.RESET}"


def print_header(text: str) -> None:
    """Print the title of a section."""
    print(f"\n{color(f'◆ {text}', Colors.CYAN, Colors.BOLD)}")


def print_title(title: str) -> None:
    """Print the title of a section; upstream has this function twice, with different parameters."""
    print_header(title)


def print_info(text: str) -> None:
    """Print a line of explanation."""
    print(color(f"  {text}", Colors.DIM))


def print_success(text: str) -> None:
    """Print a success message."""
    print(color(f"✓ {text}", Colors.GREEN))


def print_warning(text: str) -> None:
    """Print a warning."""
    print(color(f"⚠ {text}", Colors.YELLOW))


def print_error(text: str) -> None:
    """Print an error message."""
    print(color(f"✗ {text}", Colors.RED))


def prompt(question: str, default: str | None = None, password: bool = False) -> str:
    """Ask for a line of text and return it, or `default` (or "") if it is empty.

    Args:
        password: do not echo the input.
    """
    shown = f" [{default}]" if default and not password else ""
    line = f"{color(f'{question}{shown}', Colors.YELLOW)}: "
    return (masked_secret_prompt(line) if password else _line(line)) or default or ""


def prompt_yes_no(question: str, default: bool = True) -> bool:
    """Ask until the answer is yes or no; an empty answer means `default`."""
    while True:
        answer = _line(f"{color(question, Colors.YELLOW)} [{'Y/n' if default else 'y/N'}]: ").lower()
        if not answer:
            return default
        if answer in ("y", "yes"):
            return True
        if answer in ("n", "no"):
            return False
        print_error("Please answer y or n.")


def prompt_choice(question: str, choices: Sequence[str], default: int = 0, description: str | None = None) -> int:
    """Ask the user to choose from `choices` and return the index of the choice."""
    return curses_radiolist(question, list(choices), default, description=description)


def curses_radiolist(
    title: str,
    items: list[str],
    selected: int = 0,
    *,
    cancel_returns: int | None = None,
    description: str | None = None,
    searchable: bool = False,
) -> int:
    """Ask the user to choose from a numbered list and return the index of the choice.

    Args:
        selected: the result of an empty line.
        cancel_returns: the result of `q`, end of input or Ctrl-C; None means `selected`.
        searchable: ignored; in every list, text that only a single item contains selects that item.
    """
    cancelled = selected if cancel_returns is None else cancel_returns
    print(color(title, Colors.BOLD))
    if description:
        print(color(description, Colors.DIM))
    for number, item in enumerate(items, 1):
        print(f"  {'●' if number - 1 == selected else '○'} {number}. {item}")
    while True:
        try:
            answer = _ask_line(f"Choice [{selected + 1}]: ")
        except (EOFError, KeyboardInterrupt):
            print()
            return cancelled
        if not answer:
            return selected
        if answer.lower() == "q":
            return cancelled
        if answer.isdigit() and 1 <= int(answer) <= len(items):
            return int(answer) - 1
        matches = [i for i, item in enumerate(items) if answer.lower() in item.lower()]
        if len(matches) == 1:
            return matches[0]
        print_error(f"Please answer with a number from 1 to {len(items)}, or q.")


def masked_secret_prompt(prompt: str, *, mask: str = "*") -> str:
    """Ask for a secret without echoing it.

    Args:
        mask: ignored; upstream prints it for each character, which reveals the length.
    """
    if not sys.stdin.isatty():
        return _line(prompt)
    try:
        return getpass.getpass(prompt).strip()
    except EOFError:
        return ""


def ask(label: str, default: str | None = None, secret: bool = False) -> str:
    """Ask for a value."""
    return prompt(f"  {label}", default, password=secret)


def choose(title: str, items: Sequence[Any], default: int = 0, **options: Any) -> int:
    """Ask the user to choose from `items` and return the index, or `CANCELLED`.

    Args:
        items: texts, or pairs of text and description.
        options: `cancel_returns` replaces `CANCELLED`; others are ignored.
    """
    texts = [item if isinstance(item, str) else " - ".join(str(part) for part in item if part) for item in items]
    return curses_radiolist(title, texts, default, cancel_returns=options.get("cancel_returns", CANCELLED))


def print_cancelled_setup() -> None:
    """Print that the setup was cancelled."""
    print_info("Setup cancelled; nothing was changed.")


def write_env_vars(env_path: Any, env_writes: Mapping[str, str]) -> None:
    """Store variables in the home's `.env`.

    Args:
        env_path: ignored; upstream writes to this file.
    """
    for name, value in env_writes.items():
        save_env_value(name, value)


def setup_memory(provider_name: str) -> None:
    """Ask for the settings that a memory provider declares, store them, and select the provider.

    The provider's `get_config_schema` lists the settings.

    Raises:
        UserError: no plugin registers that provider.
    """
    provider = host().providers["memory"].get(provider_name)
    if provider is None:
        raise UserError(
            f"no memory provider `{provider_name}` is loaded",
            hint=f"Set memory.provider to {provider_name} and start again; `hermes plugins list` says what fails.",
        )
    configure_provider(provider, hermes_home(), _ask_for, save_env_value, {})
    set_value(hermes_home(), ("memory", "provider"), provider_name)
    print_success(f"memory.provider is {provider_name} from the next start on")


def _ask_for(field: SetupField) -> str:
    return ask(field.description, field.default or None, field.secret)


def _line(question: str) -> str:
    """Return a line without surrounding white space, or "" at the end of input.

    Raises:
        UserError: the user pressed Ctrl-C.
    """
    try:
        return _ask_line(question)
    except EOFError:
        print()
        return ""
    except KeyboardInterrupt:
        print()
        raise UserError("cancelled") from None


def _ask_line(question: str) -> str:
    return input(question).strip()
