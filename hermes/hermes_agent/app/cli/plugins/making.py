"""`hermes plugins new`: write a plugin that works, with its test."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from hermes_agent.app.cli.plugins.showing import link_command
from hermes_agent.config import hermes_home
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.plugins.template import TEST, fill_template

__all__ = ["run_new"]


def run_new(args: argparse.Namespace) -> int:
    """Write the files of a new plugin into a folder that is not there yet."""
    made = fill_template(args.name, args.kind, package=args.package)
    folder = Path(args.dir or args.name)
    try:
        folder.mkdir(parents=True)
        for name, text in made.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except FileExistsError as exc:
        raise UserError(f"{folder} is there already", hint="Choose another name, or --dir.") from exc
    except OSError as exc:
        raise UserError(f"cannot write {exc.filename}: {exc.strerror}") from exc
    print(f"Written to {folder}/: {', '.join(sorted(made.files))}")
    print(f"Check it:   cd {folder} && {made.check}")
    print(f"Test it:    {sys.executable}{TEST.removeprefix('python')}")
    if importlib.util.find_spec("pytest") is None:
        print(f"            (pytest is not installed: {sys.executable} -m pip install pytest)")
    print("Install it: hermes plugins install . --enable")
    if not args.package:
        where = hermes_home() / "plugins"
        print("While you work on it, an edit must not wait for a grant:")
        if folder.resolve().parent != where.resolve():
            print(f"            {link_command(folder, where)}")
        print(f"            hermes plugins enable {args.name} --dev")
    return EXIT_OK
