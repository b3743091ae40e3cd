"""Loops of Python code that delete files of a directory: which directory, and whether all of it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.policy.shell.script import UNKNOWN

_METHODS = frozenset({"unlink", "rmdir", "rmtree", "removedirs", "remove_p", "rmtree_p"})
_FUNCTIONS = re.compile(r"(?:os\.(?:remove|unlink|rmdir|removedirs)|shutil\.rmtree|send2trash(?:\.send2trash)?)$")
_WALKERS = frozenset({"os.walk", "os.scandir", "os.fwalk", "os.listdir", "glob.glob", "glob.iglob"})
_RELATIVE = frozenset({"os.listdir"})
_KINDS = frozenset({"is_file", "is_dir", "exists", "is_symlink", "isfile", "isdir", "islink", "lexists"})
_TURNS = 4
_WHOLE = re.compile(r"\*\*?(?:/\*(?:\.\*)?)?|\*\.\*")


class _Walk(LazyNamedTuple):
    """The directory through which a variable iterates."""

    place: str
    relative: bool = False
    """Whether the variable is the name of an entry, without its directory."""
    part: bool = False
    """Whether entries are left out."""


class _Finder:
    def __init__(self, tree: ast.AST, text: Callable[[ast.AST], str], path: Callable[[ast.AST | None], str]) -> None:
        self._tree, self._text, self._path = tree, text, path
        self._walks: dict[str, _Walk] = {}
        self._places: dict[str, str] = {}
        """Directories among the arguments of functions, by parameter."""
        self._above = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def found(self) -> Iterator[str]:
        for _ in range(_TURNS):
            before = (len(self._walks), len(self._places))
            for node in ast.walk(self._tree):
                self._bind(node)
            if before == (len(self._walks), len(self._places)):
                break
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                yield from self._deleted(node)

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.For(target=target, iter=given) | ast.AsyncFor(target=target, iter=given):
                self._set(target, self._walk(given))
            case ast.comprehension(target=target, iter=given):
                self._set(target, self._walk(given))
            case ast.Assign(targets=[target], value=value) | ast.NamedExpr(target=target, value=value):
                self._set(target, self._walk(value))
            case ast.withitem(context_expr=value, optional_vars=ast.Name() as target):
                self._set(target, self._walk(value))
            case ast.Call():
                self._call(node)

    def _set(self, target: ast.AST, walk: _Walk | None) -> None:
        if walk is None or UNKNOWN in walk.place:
            return
        names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
        for index, name in enumerate(names):
            self._walks.setdefault(name, walk._replace(relative=walk.relative or (len(names) == 3 and index > 0)))

    def _call(self, node: ast.Call) -> None:
        """Bind the parameters of a function to the arguments of a call."""
        taken = node.args
        function: ast.AST | None = None
        if isinstance(node.func, ast.Name):
            name = node.func.id
            function = next(
                (f for f in ast.walk(self._tree) if isinstance(f, ast.FunctionDef) and f.name == name), None
            )
            if name in ("map", "filter") and node.args:
                taken, function = node.args[1:], self._function(node.args[0])
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("map", "imap", "imap_unordered", "submit"):
            taken, function = node.args[1:], self._function(node.args[0]) if node.args else None
        if not isinstance(function, ast.FunctionDef | ast.Lambda):
            return
        for parameter, value in zip(function.args.args, taken, strict=False):
            self._set(ast.Name(parameter.arg), self._walk(value))
            place = self._text(value)
            if place.startswith(("/", "~")):
                self._places.setdefault(parameter.arg, place)

    def _function(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Name):
            return next((f for f in ast.walk(self._tree) if isinstance(f, ast.FunctionDef) and f.name == node.id), None)
        return node

    def _walk(self, node: ast.AST | None) -> _Walk | None:
        """Return the directory through which an expression iterates, or None."""
        match node:
            case ast.Name(id=name):
                return self._walks.get(name)
            case ast.Attribute(value=value, attr="path" | "name" | "parent"):
                return self._walk(value)
            case (
                ast.ListComp(generators=[item, *_])
                | ast.GeneratorExp(generators=[item, *_])
                | ast.SetComp(generators=[item, *_])
            ):
                walk = self._walk(item.iter)
                return walk and walk._replace(part=walk.part or any(map(self._narrows, item.ifs)))
            case ast.Call(func=func, args=args):
                return self._called(func, args)
        return None

    def _called(self, func: ast.AST, args: list[ast.expr]) -> _Walk | None:
        path = self._path(func)
        if path in _WALKERS:
            given = self._place(args[0]) if args else "."
            whole = re.sub(r"/\*\*?(?:/\*)?$", "", given) if path.startswith("glob.") else given
            if path.startswith("glob.") and (whole == given or "*" in whole):
                return _Walk(given, part=True)
            return _Walk(whole or "/", relative=path in _RELATIVE)
        if isinstance(func, ast.Attribute) and func.attr in ("rglob", "glob", "iterdir", "walk"):
            pattern = self._text(args[0]) if args else "*"
            return _Walk(self._place(func.value), part=not _WHOLE.fullmatch(pattern))
        if isinstance(func, ast.Attribute) and func.attr in ("resolve", "absolute", "expanduser"):
            return self._walk(func.value)
        names = (
            "list",
            "sorted",
            "reversed",
            "set",
            "tuple",
            "iter",
            "enumerate",
            "str",
            "Path",
            "chain",
            "tqdm",
            "map",
        )
        if path.rpartition(".")[2].removesuffix("()") in names:
            return next(filter(None, map(self._walk, args)), None)
        if path == "filter" and len(args) > 1:
            walk = self._walk(args[1])
            name = args[0].attr if isinstance(args[0], ast.Attribute) else ""
            plain = name in _KINDS or (isinstance(args[0], ast.Lambda) and not self._narrows(args[0].body))
            return walk and walk._replace(part=walk.part or not (plain or isinstance(args[0], ast.Constant)))
        return None

    def _place(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name) and node.id in self._places:
            return self._places[node.id]
        return self._text(node)

    def _narrows(self, test: ast.AST) -> bool:
        """Return whether a test excludes entries by more than their kind."""
        calls = [n for n in ast.walk(test) if isinstance(n, ast.Call)]
        other = any(not (isinstance(c.func, ast.Attribute) and c.func.attr in _KINDS) for c in calls)
        return other or any(isinstance(n, ast.Compare) for n in ast.walk(test))

    def _left_out(self, node: ast.AST) -> bool:
        """Return whether a test excludes entries between a loop and the deletion in it."""
        above: ast.AST | None = self._above.get(id(node))
        while above is not None:
            if isinstance(above, ast.If | ast.IfExp) and self._narrows(above.test):
                return True
            if isinstance(above, ast.For):
                ends = [n for n in above.body if isinstance(n, ast.If) and self._narrows(n.test)]
                if any(isinstance(n, ast.Continue | ast.Break) for item in ends for n in ast.walk(item)):
                    return True
            comprehension = isinstance(above, ast.ListComp | ast.SetComp | ast.GeneratorExp)
            if comprehension and any(self._narrows(t) for item in above.generators for t in item.ifs):  # type: ignore[attr-defined]
                return True
            above = self._above.get(id(above))
        return False

    def _deletes(self, node: ast.AST) -> bool:
        return bool(_FUNCTIONS.match(self._path(node))) or (isinstance(node, ast.Attribute) and node.attr in _METHODS)

    def _deleted(self, node: ast.Call) -> Iterator[str]:
        if self._deletes(node.func):
            own = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            given = [*own, *node.args]
        elif any(map(self._deletes, node.args)):
            given = [a for a in node.args if not self._deletes(a)]
        else:
            return
        for item in given:
            walks = [w for n in ast.walk(item) if isinstance(n, ast.Name) and (w := self._walks.get(n.id))]
            walks += [walk] if (walk := self._walk(item)) else []
            for walk in dict.fromkeys(walks):
                if walk.relative and not self._text(item).startswith(f"{walk.place.rstrip('/')}/"):
                    continue
                yield self._command(walk, left_out=self._left_out(node))
                break

    def _command(self, walk: _Walk, *, left_out: bool) -> str:
        place = walk.place.rstrip("/")
        if not walk.place.startswith(("/", "~")):
            return f"rm {shlex.quote(f'{place}/some')}"
        if walk.part or left_out:
            return f"rm -r {shlex.quote(place)}/some.entries"
        return f"rm -rf {shlex.quote(place) if place != '~' else '~'}/*"


def find_deletions(tree: ast.AST, text: Callable[[ast.AST], str], path: Callable[[ast.AST | None], str]) -> list[str]:
    """Return the deletions in loops as shell commands.

        Args:
    tree: the code.
            text: returns the text of an expression as far as it is constant.
            path: returns the dotted path of an expression.
    """
    return list(dict.fromkeys(_Finder(tree, text, path).found()))
