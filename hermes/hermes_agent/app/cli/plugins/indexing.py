"""`hermes plugins index`: write what a start would otherwise look for."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.plugins.debug_log import quiet_or_debug
from hermes_agent.plugins.index import VARIABLE
from hermes_agent.plugins.index_writing import index_document, write_index

__all__ = ["run_index"]


def run_index(args: argparse.Namespace) -> int:
    """Print the index, or write it to a file."""
    quiet_or_debug(os.environ)
    document = index_document(os.environ)
    if not args.output:
        print(json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False))
        return EXIT_OK
    file = Path(args.output)
    try:
        write_index(document, file)
    except OSError as exc:
        raise UserError(f"cannot write {file}: {exc.strerror}") from exc
    usable = sum("manifest" in each for each in document["found"])
    packages = len(document["entry_points"])
    print(
        f"{file}: {usable} plugin folder(s), {packages} package(s). A start uses it with {VARIABLE}={file.absolute()}"
    )
    return EXIT_OK
