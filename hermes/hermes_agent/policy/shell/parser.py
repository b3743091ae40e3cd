"""Parser of shell text: `read_script` returns the `ShellScript` that a text would run.

It walks the syntax tree in the order of execution, expands words as far as the text shows their values, and follows
nested code: functions, aliases, substitutions, scripts that the text itself writes. All branches count as executed.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_agent.policy.shell import syntax
from hermes_agent.policy.shell.effects import assignment_effects, find_effects, possible_commands
from hermes_agent.policy.shell.expansion import Expander
from hermes_agent.policy.shell.outputs import output_of, printed_by, written_files
from hermes_agent.policy.shell.paths import Links, resolve_place
from hermes_agent.policy.shell.programs import is_a
from hermes_agent.policy.shell.script import (
    REVEALS,
    ROOT,
    UNDETERMINED,
    UNKNOWN,
    UNLISTED,
    NestedCode,
    PossibleScript,
    ShellCommand,
    ShellScript,
    ShellWord,
)
from hermes_agent.policy.shell.small_languages import autostart_commands, compiled_files, compiled_programs, read_source
from hermes_agent.policy.shell.syntax import descendants, is_descriptor, node_text, parse_tree, prints_secret

if TYPE_CHECKING:
    from tree_sitter import Node


LONGEST = 100_000
"""Most characters of a text that is parsed."""
DEEPEST = 12
"""Most levels of scripts within scripts."""
MOST_COMMANDS = 2_000
MOST_STEPS = 20_000
"""Most visits of statements; nested functions and loops multiply them."""
TURNS = 16
"""Most values of a `for` loop that are tried one by one."""
MOST_SUPPOSED = 2
"""Most levels of commands with supposed words within each other."""
SUBSTITUTIONS = ("command_substitution", "process_substitution")
_EVALUATE = frozenset({"let", "test", "[", "printf", "read", "unset", "mapfile", "readarray", "set"})
"""Builtins that evaluate the subscript of a name among their arguments."""
_RUN_SOURCES = frozenset({"go", "java", "rust-script", "runghc", "tcc", "zig"})
"""Programs that compile a source file and run the result."""
_SUBSCRIPT = re.compile(r"\b[A-Za-z_]\w*\[[^\]]*?(?:\$\((.+)\)|`([^`]+)`)", re.DOTALL)
_UNREAD = re.compile(r"(?<!\\)`([^`]+)`|\$\((.+)\)", re.DOTALL)
"""A substitution in a part of `${x:-…}` that the grammar does not parse."""


def read_script(text: str, *, guessed: bool = False, unset: bool = False) -> ShellScript:
    """Return the commands that `text` would run. Never raises.

    Args:
        guessed: the text may not be a script (`PossibleScript`).
        unset: in `${name+text}`, unknown variables have no value.
    """
    if len(text) > LONGEST:
        return ShellScript((), problem=f"it is longer than {LONGEST} characters")
    reader = _Reader(guessed, unset=unset)
    try:
        reader.read_text(text, depth=0)
    except RecursionError:  # substitutions in substitutions, hundreds deep
        reader.problem = "it is nested too deep"
    if reader.expander.room < 0 or reader.steps > MOST_STEPS:
        reader.problem = reader.problem or "its variables or loops become too long"
    return ShellScript(tuple(reader.out), reader.fork_bomb, reader.problem, reader.assigns)


class _Reader:
    """Walk over a syntax tree in the order of execution; every branch counts as executed."""

    def __init__(self, guessed: bool, *, unset: bool) -> None:
        self.out: list[ShellCommand] = []
        self.fork_bomb = False
        self.problem = ""
        self.assigns = False
        self.cwd = ""
        self.expander = Expander(self._substitution, unset=unset)
        self._functions: dict[str, Node] = {}
        self._aliases: dict[str, str] = {}
        self._files: dict[str, str] = {}
        """The content of files that the script itself writes, as far as known."""
        self._links = Links()
        self._compiled: dict[str, str] = {}
        """The source texts of programs that the script compiles."""
        self._depth = 0
        self.steps = 0
        self._substituted: set[int] = set()
        """The ids of the substitutions of this text that were read."""
        self._calling: list[str] = []
        self._guessing = guessed
        """Whether the text may not be a command."""
        self._supposed = 0
        """How many of the commands that are being read have supposed words."""
        self._input: str | None = None
        """The input of the compound command that is being read, as far as known."""
        self._rights: tuple[str, ...] = ()
        """The programs that give the current script the rights of root."""
        self._line: str | None = None
        """The line of it that `read` takes in this turn of a loop."""
        self._endless = False
        """Whether the current code is in an endless loop."""
        self._running: list[str] = []
        """The script files that are being read."""

    def read_text(self, text: str, *, depth: int, before: tuple[ShellCommand, ...] = ()) -> list[ShellCommand]:
        """Read a script, or a script within a script; return its commands."""
        if depth > DEEPEST or len(self.out) > MOST_COMMANDS:
            self.problem = self.problem or "it is nested too deep, or too long"
            return []
        root = syntax.parse_leniently(text)
        if root.has_error:
            self.problem = self.problem or "it is not a valid shell script"
        self.fork_bomb |= self._endless and syntax.leaves_running(root)
        outer = self._depth, self._substituted
        self._depth, self._substituted = depth, set()
        try:
            found = self._children(root, before)
            if "`" in text or "(" in text:
                self._read_substitutions(root)
            if root.has_error and (other := syntax.respell(text)) != text:  # last: it changes nothing of the above
                self.read_text(other, depth=depth + 1, before=before)
            return found
        finally:
            self._depth, self._substituted = outer

    def _read_substitutions(self, root: Node) -> None:
        """Read substitutions outside commands: `$(($(rm)))`, `case $(rm) in`, `export $(rm)`."""
        for node in descendants(root, (*SUBSTITUTIONS, "word", "regex")):
            if node.type not in SUBSTITUTIONS:
                for bare in _UNREAD.finditer(node_text(node)):
                    self.read_text(bare[1] or bare[2], depth=self._depth + 1)
            elif node.id not in self._substituted:
                self._substitution(node)

    def _children(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        return [c for child in node.named_children for c in self._node(child, before)]

    def _node(self, node: Node, before: tuple[ShellCommand, ...] = ()) -> list[ShellCommand]:
        """Return the commands that a node runs; `out` has them and the nested ones."""
        self.steps += 1
        if len(self.out) > MOST_COMMANDS or self.steps > MOST_STEPS:
            self.problem = self.problem or "it is too long"
            return []
        method = getattr(self, f"_on_{node.type}", None)
        return method(node, before) if method is not None else self._children(node, before)

    # -- structure -------------------------------------------------------------------------------------------

    def _on_comment(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        return []

    def _on_pipeline(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        found, endless = list[ShellCommand](), False
        for stage in node.named_children:
            start = len(self.out)
            found += self._node(stage, (*before, *found))
            flooded = syntax.floods(self.out[start:]) if endless else False
            self.fork_bomb |= bool(flooded)
            endless = flooded is not None and (endless or syntax.endless_input(stage, self.out[start:]))
        return found

    def _on_while_statement(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        outer = self._endless
        if syntax.loops_for_ever(node):
            self._endless = True
            self.fork_bomb |= syntax.leaves_running(node)
        try:
            return self._turns(node, before)
        finally:
            self._endless = outer

    def _turns(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        """Read a loop; when it reads lines that are known, once for each of the first lines."""
        text = output_of(before[-1]) if before else self._input
        condition = node.child_by_field_name("condition")
        if not text or condition is None or not re.search(r"\bread\b", node_text(condition)):
            return self._children(node, before)
        found, outer = list[ShellCommand](), (self._input, self._line)
        self._input = None
        for self._line in text.splitlines()[:TURNS]:
            found += self._children(node, before)
        self._input, self._line = outer
        return found

    _on_c_style_for_statement = _on_while_statement

    def _on_subshell(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        cwd, known, positional = self.cwd, dict(self.expander.variables), self.expander.positional
        try:
            return self._children(node, before)
        finally:
            self.cwd, self.expander.variables, self.expander.positional = cwd, known, positional

    def _on_for_statement(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        name = node_text(variable)
        values = [w for c in node.children_by_field_name("value") for w in self.expander.words(c)]
        found: list[ShellCommand] = []
        for word in values[:TURNS] or [ShellWord(UNKNOWN)]:
            self.expander.variables[name] = word.text
            if body is not None:
                found += self._node(body, before)
        return found

    def _on_case_statement(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        return [c for item in node.named_children if item.type == "case_item" for c in self._node(item, before)]

    def _on_case_item(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        patterns = {child.id for child in node.children_by_field_name("value")}
        return [c for child in node.named_children if child.id not in patterns for c in self._node(child, before)]

    def _on_function_definition(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        name, body = node_text(node.child_by_field_name("name")), node.child_by_field_name("body")
        if body is None:
            return []
        self._functions[name] = body
        self.fork_bomb |= syntax.forks_itself(name, body)
        return self._call(name, None)  # judged without a call, too: a later command of the session may call it

    def _call(self, name: str, args: Sequence[ShellWord] | None) -> list[ShellCommand]:
        if name in self._calling:
            again = [n for n in self._calling[self._calling.index(name) :] if n in self._functions]
            self.fork_bomb |= len(again) > 1 and any(syntax.leaves_running(self._functions[n]) for n in again)
        if name in self._calling or len(self._calling) >= DEEPEST:
            return []
        self.fork_bomb |= self._endless and syntax.leaves_running(self._functions[name])
        self._calling.append(name)
        outer, self.expander.positional = self.expander.positional, None
        if args is not None:
            self.expander.positional = [word.text for word in args]
        try:
            return self._node(self._functions[name])
        finally:
            self.expander.positional = outer
            self._calling.pop()

    def _on_redirected_statement(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        """Read a command with redirects; the grammar puts the pipeline after a here-document below it."""
        body = node.child_by_field_name("body")
        redirects, stdin, rest = self.expander.redirects(node)
        outer, self._input = self._input, stdin if stdin is not None else self._input
        start, found = len(self.out), self._node(body, before) if body is not None else []
        self._input = outer
        if not found:
            found = self._run(ShellCommand((), redirects, before, stdin, cwd=self.cwd))
        elif (redirects or stdin is not None) and self.steps <= MOST_STEPS:
            reads = stdin is not None or any(r.operator == "<" for r in redirects)
            ids = set(map(id, found))
            last = len(found) - 1
            swapped: list[ShellCommand] = []
            for index, command in enumerate(found):
                more = redirects if index == last else ()
                changed = replace(command, redirects=(*command.redirects, *more))
                swapped.append(changed if stdin is None else replace(changed, stdin=stdin, heredoc=True))
            again = reads and body is not None and body.type == "command"  # nested code is read again, with the input
            self.out[start:] = [c for c in self.out[start:] if id(c) not in ids and not (again and c.via)]
            found, self.steps = [self._add_command(c, nested=reads) for c in swapped], self.steps + len(swapped)
        for child in rest:
            found += self._node(child, (*before, *found))
        return found

    # -- commands --------------------------------------------------------------------------------------------

    def _on_variable_assignment(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        self.assigns = True
        self._assign(self.expander.assignment(node))
        return []

    def _on_unset_command(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        words = (word for child in node.named_children for word in self.expander.words(child))
        return self._run(ShellCommand((ShellWord("unset"), *words), before=before, cwd=self.cwd))

    def _on_declaration_command(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        self.assigns = True
        refers = re.match(r"(?:declare|typeset|local)\s+(?:-\w+\s+)*-\w*n", node_text(node)) is not None
        for child in node.named_children:
            if child.type == "variable_assignment" and refers:
                self.expander.references |= self.expander.assignment(child)
            elif child.type == "variable_assignment":
                self._assign(self.expander.assignment(child))
            elif child.type in ("string", "raw_string", "concatenation"):
                for word in self.expander.words(child):
                    name, given, value = word.text.partition("=")
                    self._assign({name: value} if given else {})
        listing = re.fullmatch(r"(?:export|declare|typeset|readonly)(?:\s+-[px]+)?", node_text(node).strip())
        words = tuple(map(ShellWord, node_text(node).split()))
        return self._run(ShellCommand(words, before=before, cwd=self.cwd)) if listing else []

    def _assign(self, values: dict[str, str], *, lasting: bool = True) -> None:
        """Set variables, and read the code that programs run because of their values."""
        if lasting:
            self.expander.variables |= values
        for name, value in values.items():
            self._subscript(value)
            command = ShellCommand((), cwd=self.cwd)
            fed = self.expander.fed.get(name)  # the output of `NAME=<(…)`
            written = self._written if fed is None else lambda _command, _path, fed=fed: fed
            found = assignment_effects(command, name, value, written)
            if found.marks:
                self.out.append(replace(command, marks=found.marks))
            self._read_parts(found, ("",))

    def _subscript(self, value: str) -> None:
        """Read the substitution in a subscript, which arithmetic and `test -v` evaluate."""
        for match in _SUBSCRIPT.finditer(value):
            self.out.append(ShellCommand((), cwd=self.cwd, marks=frozenset({UNDETERMINED})))
            self._read_parts(NestedCode((PossibleScript(match[1] or match[2]),)), ("",))

    def _on_test_command(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        for child in descendants(node, SUBSTITUTIONS):
            self._children(child, ())
        return []

    def _on_command(self, node: Node, before: tuple[ShellCommand, ...]) -> list[ShellCommand]:
        words: list[ShellWord] = []
        local: dict[str, str] = {}
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assigns = True
                local |= self.expander.assignment(child)
            elif not child.type.endswith("_redirect") and not is_descriptor(child):
                words += self.expander.words(child)
        redirects, stdin, _ = self.expander.redirects(node)
        self._assign(local, lasting=not words)
        if local and not words:
            return []
        if prints_secret(node, self.expander.variables):
            self.out.append(ShellCommand((), cwd=self.cwd, marks=frozenset({REVEALS})))
        command = ShellCommand(tuple(words), redirects, before, stdin, stdin is not None, self.cwd, self._rights)
        if stdin is None and before:
            command = replace(command, stdin=output_of(before[-1]))
        return self._run(command)

    def _run(self, command: ShellCommand) -> list[ShellCommand]:
        """Add a command, or the code of the alias or function that it names; return the commands."""
        name = command.words[0].text if command.words else ""
        if name in self._aliases and name not in self._calling:
            self._calling.append(name)
            try:
                rest = " ".join(shlex.quote(w.text) for w in command.words[1:])
                return self.read_text(f"{self._aliases[name]} {rest}", depth=self._depth + 1, before=command.before)
            finally:
                self._calling.pop()
        if name in self._functions or name in _EVALUATE:
            for word in command.words[1:]:
                self._subscript(word.text)
        if name in self._functions:
            return [*self._call(name, command.words[1:])]
        return [self._add_command(command, nested=True)]

    def _add_command(self, command: ShellCommand, *, nested: bool) -> ShellCommand:
        """Add a command to the script, with its marks and its nested code."""
        found = find_effects(command, self._written) + self._from_source(command)
        command = replace(command, marks=found.marks - {UNLISTED} if self._guessing else found.marks)
        self.out.append(command)
        self._effects(command)
        if nested:
            self._nested(command, found)
        if nested or command.redirects:
            self._suppose(command)
        through = self._links.resolve(command)
        self._links.record(command)
        if through is not None and len(self.out) <= MOST_COMMANDS:
            outer, self._links = self._links, Links()
            self._run(through)
            self._links = outer
        return command

    def _suppose(self, command: ShellCommand) -> None:
        """Read what a command is if unknown parts of its words are empty or white space, without its effects."""
        expander, guessing = self.expander, self._guessing
        for possible in possible_commands(command) if self._supposed < MOST_SUPPOSED else ():
            outer = self.cwd, expander.variables, expander.positional, self._files, self._aliases
            expander.variables, self._files, self._aliases = dict(outer[1]), dict(outer[3]), dict(outer[4])
            self._guessing, self._supposed = True, self._supposed + 1
            self._read_parts(NestedCode((possible,)), ())
            self._guessing, self._supposed = guessing, self._supposed - 1
            self.cwd, expander.variables, expander.positional, self._files, self._aliases = outer

    def _effects(self, command: ShellCommand) -> None:
        """Apply commands that change the meaning of later ones: `cd`, `alias`, `set --`."""
        if command.name in ("cd", "pushd"):
            target = next(iter(command.operands), "~")
            to = UNKNOWN if target == "-" or UNKNOWN in target else target
            self.cwd = to if to.startswith(("/", "~", UNKNOWN)) or not self.cwd else posixpath.join(self.cwd, to)
        elif command.name == "alias":
            given = (operand.partition("=") for operand in command.operands)
            self._aliases |= {key: value for key, equals, value in given if equals}
        else:
            self._subscript(self.expander.assigned(command, command.stdin if self._line is None else self._line))
        self._record_written(command)

    def _from_source(self, command: ShellCommand) -> NestedCode:
        """Return the code of a program that this script compiled; record the outputs of a compiler."""
        for name, source in compiled_programs(command):
            text = self._written(command, source)
            if text is not None:
                self._compiled[name] = text
        texts = [self._compiled.get(path) for path in compiled_files(command)]
        if command.name in _RUN_SOURCES:
            texts += [self._written(command, operand) for operand in command.operands]
        return NestedCode.of(read_source(text) for text in texts if text is not None)

    def _record_written(self, command: ShellCommand) -> None:
        """Record the content of written files, which a later command may run."""
        text = output_of(command)
        for target, more in written_files(command) if text is not None else ():
            path = resolve_place(command, target)
            self._files[path] = (self._files.get(path, "") if more else "")[:LONGEST] + (text or "")
            self._read_parts(autostart_commands(path, self._files[path]), command.via)

    def _written(self, command: ShellCommand, name: str) -> str | None:
        """Return the text of a file that this script wrote, or None."""
        if name == "/dev/fd/63":  # the output of `<(…)`
            word = next((word for word in command.words if word.text == name and word.sources), None)
            return output_of(word.sources[-1]) if word is not None else None
        return command.stdin if name in ("/dev/stdin", "-") else self._files.get(resolve_place(command, name))

    def _read_file(self, command: ShellCommand) -> None:
        """Read the script that a command runs from a file of this script or from `<(…)`."""
        shell = is_a(command.name, "shell")
        runs = command.words[1:] if shell or command.name in ("source", ".") else command.words[:1]
        operand = next((w for w in runs if not w.text.startswith("-")), None)
        if operand is None or (shell and command.has_flag("c")):
            return
        if command.name == "run-parts":
            folder = resolve_place(command, command.args[-1])
            for text in [text for path, text in self._files.items() if path.startswith(f"{folder}/")]:
                self.read_text(text, depth=self._depth + 1)
        known = output_of(operand.sources[-1]) if operand.sources else self._written(command, operand.text)
        if known:
            args = [word.text for word in runs[runs.index(operand) + 1 :]] if shell else list(command.args)
            given = args if shell or command.words[0] is operand else (args[1:] or self.expander.positional)
            self._read_script(known, resolve_place(command, operand.text), given)

    def _read_script(self, text: str, path: str, args: list[str] | None) -> None:
        """Read the script in a file, with its arguments; when it runs itself, only once."""
        if path in self._running:
            return
        self.fork_bomb |= syntax.restarts(parse_tree(text), path)
        self._running.append(path)
        outer, self.expander.positional = self.expander.positional, args
        try:
            self.read_text(text, depth=self._depth + 1)
        finally:
            self.expander.positional = outer
            self._running.pop()

    def _nested(self, command: ShellCommand, found: NestedCode) -> None:
        """Read the nested code of a command: `sudo rm`, `bash -c …`, `xargs rm`, a script as input."""
        outer = self._rights
        self._rights = tuple(n for n in (*command.via, command.name) if n in ROOT) or outer
        self._read_parts(found, command.via)
        self._read_file(command)
        if is_a(command.name, "shell") and command.reads_code:
            read = next((r.target for r in command.redirects if r.operator == "<"), None)
            stdin = command.stdin or (None if read is None else self._files.get(resolve_place(command, read.text)))
            if stdin:
                path = "" if read is None else resolve_place(command, read.text)
                self._read_script(stdin, path, None if command.has_flag("s") else [])
        self._rights = outer

    def _read_parts(self, found: NestedCode, via: tuple[str, ...]) -> None:
        if len(via) > DEEPEST or len(self.out) > MOST_COMMANDS:
            self.problem = self.problem or "its commands are nested too deep, or too many"
            return
        for part in found.parts:
            if isinstance(part, str):
                if part.replace(UNKNOWN, "").strip():
                    outer = self._guessing, self.expander.positional
                    if isinstance(part, PossibleScript):
                        self._guessing, self.expander.positional = True, None
                    self.read_text(part, depth=self._depth + 1)
                    self._guessing, self.expander.positional = outer
            else:
                self._run(part)

    def _substitution(self, node: Node) -> tuple[str, tuple[ShellCommand, ...]]:
        """Read `$(…)` or `<(…)`; return its text in the word as far as known, and its commands."""
        self._substituted.add(node.id)
        cwd = self.cwd
        found = self._children(node, ())
        redirects, _, _ = self.expander.redirects(node)  # `$(<file)`
        if redirects and not found:
            found = self._run(ShellCommand((ShellWord("cat"),), redirects, cwd=self.cwd))
        self.cwd = cwd
        return printed_by(found, either="||" in node_text(node)).rstrip("\n"), tuple(found)
