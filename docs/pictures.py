"""Draw the two pictures of docs/architecture.md from the imports of the code: `make docs`.

The layers: an arrow leads from a package to one that it imports; one that a longer way shows already is left out.
The way of a message: an arrow is solid where one of the two modules imports the other, and dotted where an object or
a callable that `host` hands in connects them.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ROOT / "hermes" / "hermes_agent"
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = re.compile(r"(<!-- picture: (\w+) -->\n).*?(<!-- end of picture -->)", re.DOTALL)

WAY = (
    ("adapters.base", "gateway.intake", "message of a user"),
    ("gateway.intake", "delivery.service", "allowed: receive it"),
    ("delivery.service", "delivery.inbox", "store it, then acknowledge it"),
    ("delivery.inbox", "delivery.workers", "oldest message of the chat"),
    ("delivery.workers", "gateway.chat_sessions", "claimed message"),
    ("gateway.chat_sessions", "agent.command_router", "line that begins with a slash"),
    ("gateway.chat_sessions", "gateway.chat_turn", "any other message"),
    ("gateway.chat_turn", "agent.conversation", "start or resume a turn"),
    ("agent.conversation", "agent.turn", "run the turn"),
    ("agent.turn", "agent.turn_start", "hooks, memory, context of plugins"),
    ("agent.turn", "agent.model_step", "next model request"),
    ("agent.model_step", "models.fallback", "retry, next key, next model"),
    ("models.fallback", "models.client_pool", "chosen model"),
    ("models.client_pool", "models.client", "request out, stream of the answer in"),
    ("agent.turn", "agent.tool_step", "tool calls of the answer"),
    ("agent.tool_step", "tools.dispatch", "one tool call"),
    ("tools.dispatch", "tools.approval_gate", "may it run?"),
    ("tools.approval_gate", "policy.approvals", "approval request"),
    ("agent.conversation", "agent.transcript_writer", "each step, before the next one"),
    ("agent.transcript_writer", "sessions.commits", "commit to state.db"),
    ("gateway.chat_sessions", "delivery.workers", "replies and end of the message"),
    ("delivery.workers", "delivery.outbox", "oldest unsent part"),
    ("delivery.outbox", "gateway.chat_messages", "claimed part"),
    ("gateway.chat_messages", "adapters.sender", "send"),
    ("adapters.sender", "adapters.base", "message to the platform"),
)
"""The modules on the way of a chat message, from the platform and back to it, and what passes between two of them."""


def path_of(module: str) -> Path | None:
    """Return the file of a module of `hermes_agent`, or None if there is none of that name."""
    base = CODE.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@cache
def imports(module: str) -> dict[str, str]:
    """Return the names that a module imports from `hermes_agent`, each with its module; also inside functions.

    Raises:
        SystemExit: the module does not exist.
    """
    path = path_of(module)
    if path is None:
        raise SystemExit(f"docs/pictures.py: there is no module {module}: correct WAY")
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hermes_agent":
            source = (node.module or "").partition(".")[2]
            for alias in node.names:
                inner = f"{source}.{alias.name}".strip(".")
                found[alias.name] = inner if path_of(inner) else source
        elif isinstance(node, ast.Import):
            found |= {a.name: a.name.partition(".")[2] for a in node.names if a.name.startswith("hermes_agent.")}
    return found


def defining_modules(module: str) -> set[str]:
    """Return the modules that a module imports; a name that a package passes on counts for the module behind it."""
    return {
        imports(source).get(name, source) if source and (CODE / source.replace(".", "/")).is_dir() else source
        for name, source in imports(module).items()
    }


def rows() -> list[list[str]]:
    """Return the layers of pyproject.toml, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.strip(" ()") for name in row.split("|")] for row in layers]


def package_imports() -> dict[str, set[str]]:
    """Return which packages each package imports."""
    packages = {name for row in rows() for name in row}
    found: dict[str, set[str]] = {name: set() for name in packages}
    for path in CODE.rglob("*.py"):
        module = ".".join(path.relative_to(CODE).with_suffix("").parts).removesuffix(".__init__")
        package = module.partition(".")[0]
        if package in packages:
            found[package] |= {source.partition(".")[0] for source in imports(module).values()} & packages - {package}
    return found


def below(package: str, graph: dict[str, set[str]]) -> set[str]:
    """Return all packages that a package reaches by its imports."""
    return graph[package].union(*(below(name, graph) for name in graph[package]))


def draw_layers() -> str:
    """Draw the packages in their rows, with the imports that no longer way shows."""
    graph = package_imports()
    lines = ["flowchart TB"]
    for number, row in enumerate(rows()):
        lines += [f'  subgraph row{number}[" "]', "    direction LR", *(f"    {name}" for name in row), "  end"]
    for row in rows():
        for name in row:
            implied = set().union(*(below(other, graph) for other in graph[name]))
            lines += [f"  {name} --> {other}" for other in sorted(graph[name] - implied)]
    return "\n".join(lines)


def draw_way() -> str:
    """Draw the way of a chat message through the modules."""
    lines = ["flowchart TB"]
    for module in dict.fromkeys(end for start, stop, _ in WAY for end in (start, stop)):
        lines.append(f'  {module.replace(".", "_")}["{module.replace(".", "/")}.py"]')
    for number, (start, stop, label) in enumerate(WAY, 1):
        connected = stop in defining_modules(start) or start in defining_modules(stop)
        arrow = "-->" if connected else "-.->"
        lines.append(f'  {start.replace(".", "_")} {arrow}|"{number}. {label}"| {stop.replace(".", "_")}')
    return "\n".join(lines)


def drawn(page: str) -> str:
    """Return the text of the page with its pictures drawn again."""
    pictures = {"layers": draw_layers, "way": draw_way}
    return PICTURE.sub(lambda found: f"{found[1]}```mermaid\n{pictures[found[2]]()}\n```\n{found[3]}", page)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    if (new := drawn(text)) != text:
        PAGE.write_text(new, encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)}: drawn", file=sys.stderr)
