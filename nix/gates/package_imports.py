"""Import every module of the installed agent: a file that was left out of the package is found here, not by a user."""

import importlib
import pkgutil
import sys
from collections.abc import Iterator

import hermes_agent

RUNS = ".__main__"
"""Runs the program."""
# Loaded by a program of others, and useful only where that one is installed.
LOADED_BY = {"hermes_agent.testing.pytest_plugin": "pytest"}


def unserved() -> Iterator[tuple[str, Exception]]:
    """Yield each of upstream's names that would not be there, and why."""
    from hermes_agent.compat.import_hook import served

    for module, section in served().items():
        for name, (place, ours) in section.names.items():
            try:
                getattr(importlib.import_module(place), ours.removesuffix("()"))
            except Exception as error:  # noqa: BLE001 - each of them is told
                yield f"{module}.{name}", error


def main() -> int:
    wrong = []
    found = [m.name for m in pkgutil.walk_packages(hermes_agent.__path__, "hermes_agent.")]
    for name in found:
        if name.endswith(RUNS):
            continue
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - each of them is told
            if isinstance(error, ModuleNotFoundError) and error.name == LOADED_BY.get(name, ""):
                continue
            wrong.append(f"    {name}: {type(error).__name__}: {error}")
    wrong += [f"    {name}: {error}" for name, error in unserved()]
    if wrong:
        print("error: hermes-agent: modules of the package that do not import:", *wrong, sep="\n", file=sys.stderr)
        print("hint: a dependency or a data file is missing from nix/library.nix or pyproject.toml.", file=sys.stderr)
        return 1
    print(f"{len(found)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
