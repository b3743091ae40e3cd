"""Import every module of the installed agent: a file that was left out of the package is found here, not by a user."""

import importlib
import pkgutil
import sys

import hermes_agent

RUNS = ".__main__"
"""Runs the program."""
# Loaded by a program of others, and useful only where that one is installed.
LOADED_BY = {"hermes_agent.testing.pytest_plugin": "pytest"}


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
    if wrong:
        print("error: hermes-agent: modules of the package that do not import:", *wrong, sep="\n", file=sys.stderr)
        print("hint: a dependency or a data file is missing from nix/library.nix or pyproject.toml.", file=sys.stderr)
        return 1
    print(f"{len(found)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
