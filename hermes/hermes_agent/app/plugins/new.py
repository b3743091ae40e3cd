"""`hermes plugins new`: write a working plugin and its test from a template.

`files/KIND.txt` has the files of a kind, each after a line `### NAME`. `@name@`, `@word@`, `@dashed@`, `@Class@` and
`@ENV@` stand for forms of the plugin's name, `@plugin@` for the argument with which a test opens the plugin.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from pathlib import Path

from hermes_agent.app.plugins.terminal_io import link_command
from hermes_agent.config import hermes_home
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.entry_points import GROUP
from hermes_agent.plugins.manifest import name_problem

FOLDER_KINDS = ("model-provider",)
TEST = "python -m pytest tests"
"""Command that runs the tests, in the plugin's folder."""
TEMPLATE_FOLDER = Path(__file__).parent / "files"
_PART = re.compile(r"^### (.+)\n", re.MULTILINE)

MANIFEST = """\
name: {name}
version: 0.1.0
description: {about}
manifest_version: 1
"""
README = """\
# {name}

{about}

    {test}
    {install}
"""
PYTEST = """\
# This file makes `tests` the root of pytest, which would take the plugin above it for a package and import it.
[pytest]
"""
PYPROJECT = """\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "hermes-plugin-{dashed}"
version = "0.1.0"
description = "{about}"
requires-python = ">=3.11"

[project.entry-points."{group}"]
{name} = "{package}"

[tool.setuptools]
packages = ["{package}"]

[tool.setuptools.package-data]
"*" = ["**/*"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""


class TemplateFiles(LazyNamedTuple):
    """Files of a new plugin, and the command that checks it."""

    files: dict[str, str]
    """Text of each file by relative path."""
    check: str
    """Command that checks the plugin, in its folder."""


def kinds() -> list[str]:
    """Return the kinds of plugins that have a template."""
    return sorted(file.stem for file in TEMPLATE_FOLDER.glob("*.txt"))


def fill_template(name: str, kind: str, *, package: bool) -> TemplateFiles:
    """Return the files of a new plugin.

    Args:
        package: True for a Python package with an entry point, False for a directory plugin.

    Raises:
        UserError: the name is not valid for a plugin, or the kind cannot be a package.
    """
    problem = name_problem(name)
    words = [w for w in re.split(r"[^A-Za-z0-9]+", name) if w]
    if problem is not None or not words or not words[0][0].isalpha():
        raise UserError(problem or f"{name!r} cannot name a plugin: it must begin with a letter")
    if package and re.fullmatch(r"[\w.-]+", name) is None:
        raise UserError(f"{name!r} cannot name an entry point: only letters, digits, `_`, `-` and `.` go")
    if package and kind in FOLDER_KINDS:
        raise UserError(
            f"a {kind} is a directory plugin: its module registers it when it is imported, without `register`"
        )
    word = "_".join(words).lower()
    module = f"hermes_plugin_{word}"
    forms = {
        "name": name,
        "word": word,
        "dashed": "-".join(words).lower(),
        "Class": "".join(w[:1].upper() + w[1:] for w in words),
        "ENV": word.upper(),
        "plugin": f'"{module}:register"' if package else "Path(__file__).parents[1]",
    }
    parts = _parts(kind, forms)
    extra, test, init = parts.pop("manifest"), parts.pop("test"), parts["__init__.py"]
    about = _about(init, name)
    root = f"{module}/" if package else ""
    files = {f"{root}{path}": text for path, text in parts.items()}
    files[f"tests/test_{word}.py"] = test if package or "import Path" in test else f"from pathlib import Path\n\n{test}"
    if package:
        files["pyproject.toml"] = PYPROJECT.format(**forms | {"about": about, "group": GROUP, "package": module})
    else:
        files["tests/pytest.ini"] = PYTEST
        files["plugin.yaml"] = MANIFEST.format(name=name, about=about) + extra
    install = "hermes plugins install . --enable"
    files["README.md"] = README.format(name=name, about=about, test=TEST, install=install)
    return TemplateFiles(files, TEST if package else "hermes plugins check .")


def _parts(kind: str, forms: dict[str, str]) -> dict[str, str]:
    text = (TEMPLATE_FOLDER / f"{kind}.txt").read_text(encoding="utf-8")
    for form, value in forms.items():
        text = text.replace(f"@{form}@", value)
    pieces = _PART.split(text)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def _about(init: str, name: str) -> str:
    """Return the first sentence of a module's docstring, without the plugin's name."""
    line = init.removeprefix('"""').splitlines()[0].rstrip('"').removeprefix(f"{name}: ").partition(". ")[0]
    return line[:1].upper() + line[1:].rstrip(".").replace("`", "").replace('"', "'")


def run_new(args: argparse.Namespace) -> int:
    """Write the files of a new plugin into a new folder."""
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
