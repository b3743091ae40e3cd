"""`python -m hermes_agent.compat SCRIPT [ARG…]`: run a script with upstream's import names served."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from hermes_agent.compat import agent, import_hook
from hermes_agent.core.errors import EXIT_USAGE

USAGE = "usage: python -m hermes_agent.compat SCRIPT [ARG…]"


def main(argv: Sequence[str]) -> int:
    """Run the script as `python SCRIPT ARG…` would and return 0; its errors and `sys.exit` pass through.

    Return 2 with a message on standard error if the script does not exist.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if argv else sys.stderr)
        return 0 if argv else EXIT_USAGE
    script = Path(argv[0])
    if not script.exists():
        print(f"hermes_agent.compat: there is no {script}\n{USAGE}", file=sys.stderr)
        return EXIT_USAGE
    import_hook.install()
    agent.allow_building()
    sys.argv = list(argv)
    if script.is_file():  # runpy adds a directory or archive with a __main__.py itself
        sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
