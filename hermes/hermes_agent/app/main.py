"""The command `hermes`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from hermes_agent import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run `hermes ARGV…` and return its exit status: 0, 1, 2 (usage, no model), 75 (lock), 78 (config)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):  # before other imports
        print(f"hermes-agent {__version__}")
        return 0
    gc.disable()  # imports create no garbage
    from hermes_agent.system import deferred_modules  # `--version` needs none of this

    deferred_modules.defer_unused()
    from hermes_agent.app import command_line

    gc.freeze()
    gc.enable()
    try:
        status = command_line.run(arguments)
        sys.stdout.flush()  # here a closed pipe differs from another error
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout once more at exit
        return 141
