"""`hermes --help` reads the summaries of subcommands from a file; run this file to write it."""

from __future__ import annotations

import argparse
import subprocess
import sys

from hermes_agent.app.command_line import SUMMARIES, build_parser, read_summaries


def declared() -> dict[str, str]:
    """Return the summaries of the declarations, by name."""
    parser = build_parser()
    [commands] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return {choice.dest: str(choice.help) for choice in commands._choices_actions}


def text() -> str:
    found = declared()
    width = max(map(len, found))
    return "".join(f"{name:<{width}}  {summary}\n" for name, summary in found.items())


def test_the_file_has_the_summaries_of_the_declarations() -> None:
    assert read_summaries() == declared(), "run `make docs`"


def test_the_help_is_that_of_the_whole_command_line() -> None:
    def shape(parser: argparse.ArgumentParser) -> str:
        return parser.format_help()

    assert shape(build_parser((), listed=True)) == shape(build_parser())


def test_the_help_imports_no_subcommand() -> None:
    code = "import sys; from hermes_agent.app.main import main; sys.argv = ['hermes', '--help']\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print([name for name in sys.modules if name.startswith('hermes_agent.app.')], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "gateway" in done.stdout
    loaded = {name.removeprefix("hermes_agent.app.") for name in eval(done.stderr)}
    assert loaded == {"main", "command_line", "cli", "cli.command", "cli.parser", "cli.examples", "plugin_subcommands"}


if __name__ == "__main__":
    SUMMARIES.write_text(text())
