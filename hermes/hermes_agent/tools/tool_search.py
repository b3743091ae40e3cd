"""Tool search: a model finds tools on demand if there are more than a request should carry.

Built-in tools stay in the request, and so do tools that the operator pinned or named for the platform. Of the rest, the
smaller toolsets stay as long as there is room. The description of `tool_search` names the others; a call of one takes
the usual pipeline under its own name. Source: plugin contract §4.9.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from hermes_agent.config.settings import Settings, section
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.registry import BUILTIN
from hermes_agent.tools.arguments import repair_name
from hermes_agent.tools.call_scope import current_scope
from hermes_agent.tools.registry import ToolRegistry
from hermes_agent.tools.results import tool_error, tool_result

TOOL_CALL = "tool_call"
SEARCH_TOOLS = ("tool_search", "tool_describe", TOOL_CALL)
SEARCH_HINT = "it takes the place of tools where there are too many (tools.tool_search)"
NAMED_CHARS = 2_000
"""Characters for names of tools in the description of `tool_search`."""

Definition = dict[str, Any]


class SearchSettings(LazyNamedTuple):
    """The block `tools.tool_search` of the config."""

    enabled: str = "auto"
    threshold_pct: float = 10
    threshold_tokens: int = 20_000
    pinned: Sequence[str] = ()
    """Tools and toolsets that stay."""
    search_default_limit: int = 5
    max_search_limit: int = 20

    @classmethod
    def of(cls, settings: Settings) -> SearchSettings:
        """Read the block from a config."""
        search = settings.tools.tool_search
        return section(cls, search, enabled="on" if search.enabled is True else search.enabled)

    def room_tokens(self, window: int) -> float:
        """Return how many tokens the tools of plugins may take.

        Args:
            window: context window of the model in tokens; 0 if it is unknown.
        """
        if self.enabled != "auto":
            return math.inf if self.enabled == "off" else 0
        return min(self.threshold_tokens, window * self.threshold_pct / 100 if window else math.inf)


class ToolSearch:
    """Splits definitions into shown and hidden ones, and registers the tools that find the hidden ones."""

    def __init__(self, registry: ToolRegistry, settings: SearchSettings) -> None:
        self._registry = registry
        self._settings = settings
        self._weights: dict[str, tuple[object, object, int]] = {}
        """Parameters, description and size in tokens of each tool, by its name."""

    def register_tools(self, ctx: Registrar) -> None:
        """Register the tools that find others; only `split` shows them, no listing does."""
        handlers = (self._search, self._describe, _misplaced)
        for schema, handler in zip((_SEARCH, _DESCRIBE, _CALL), handlers, strict=True):
            ctx.register_tool(schema["name"], "tool_search", schema, handler, _never, idempotent=True)

    def split(
        self, definitions: Sequence[Definition], *, named: Collection[str] = (), window: int = 0
    ) -> tuple[list[Definition], tuple[str, ...]]:
        """Return the definitions that the model gets, sorted by name, and the names of the hidden tools.

        Args:
            named: tools of toolsets that the operator named; they stay.
            window: context window of the model in tokens; 0 if it is unknown.
        """
        visible, pinned = set(named), set(self._settings.pinned)
        toolsets = self._registry.get_tool_to_toolset_map()
        own = {toolsets[name] for name in self._registry.owned_by(BUILTIN) if name in toolsets}
        stays = own | pinned
        weights: Counter[str] = Counter()
        by_toolset: dict[str, list[str]] = {}
        for definition in definitions:
            name = definition["function"]["name"]
            toolset = toolsets.get(name, "")
            if toolset not in stays and name not in pinned and name not in visible:
                by_toolset.setdefault(toolset, []).append(name)
                weights[toolset] += self._weight(definition["function"])
        room = self._settings.room_tokens(window)
        if weights.total() < room or not by_toolset:
            return list(definitions), ()
        hidden: dict[str, list[str]] = {}
        for toolset in sorted(by_toolset, key=lambda t: (weights[t], t)):
            room -= weights[toolset]
            if room <= 0:
                hidden[toolset] = by_toolset[toolset]
        names = {name for toolset in hidden.values() for name in toolset}
        shown = [d for d in definitions if d["function"]["name"] not in names]
        shown += [{"type": "function", "function": s} for s in (_with_hidden_names(_SEARCH, hidden), _DESCRIBE, _CALL)]
        return sorted(shown, key=lambda d: str(d["function"]["name"])), tuple(sorted(names))

    def _weight(self, function: Definition) -> int:
        """Return the approximate size of a definition in tokens; cached while the definition stays the same."""
        seen = self._weights.get(function["name"])
        if seen is None or seen[0] is not function["parameters"] or seen[1] != function["description"]:
            weight = len(json.dumps(function, ensure_ascii=False)) // 4
            seen = self._weights[function["name"]] = (function["parameters"], function["description"], weight)
        return seen[2]

    def _candidates(self) -> list[Definition]:
        scope = current_scope.get()
        shown = None if scope is None else scope.shown
        names = self._registry.get_all_tool_names() if shown is None else shown
        return [
            d["function"]
            for d in self._registry.get_definitions([n for n in names if self._registry.owner(n) != BUILTIN])
        ]

    def _search(self, args: dict[str, Any], **kwargs: Any) -> str:
        limit = args.get("limit")
        limit = limit if isinstance(limit, int) and limit > 0 else self._settings.search_default_limit
        candidates = self._candidates()
        found = _rank(str(args.get("query") or ""), candidates)[: min(limit, self._settings.max_search_limit)]
        if not found:
            return tool_result(tools=[], names=[function["name"] for function in candidates])
        return tool_result(tools=found, hint=f"Call one with {TOOL_CALL}(name, arguments).")

    def _describe(self, args: dict[str, Any], **kwargs: Any) -> str:
        name, candidates = str(args.get("name") or ""), {f["name"]: f for f in self._candidates()}
        meant = repair_name(name, candidates)
        if meant is None:
            import difflib  # as in names

            near = difflib.get_close_matches(name, candidates, n=5, cutoff=0.3)
            return tool_error(f"There is no tool `{name:.80}` to be found", did_you_mean=near)
        return tool_result(candidates[meant])


def unwrap_search_call(arguments: dict[str, Any] | None, valid: Collection[str]) -> tuple[str, dict[str, Any] | None]:
    """Return the tool of a `tool_call` and its arguments, None if they are no JSON object."""
    if arguments is None or not isinstance(arguments.get("name"), str):
        return TOOL_CALL, None
    given = arguments.get("arguments", {})
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}", strict=False)
        except (ValueError, RecursionError):
            given = None
    name = repair_name(arguments["name"], [n for n in valid if n != TOOL_CALL]) or arguments["name"]
    return name, dict(given) if isinstance(given, dict) else None


def _never() -> bool:
    return False


def _misplaced(args: dict[str, Any], **kwargs: Any) -> str:
    return tool_error(f"{TOOL_CALL} must be handled by the agent loop")


def _with_hidden_names(schema: Definition, hidden: dict[str, list[str]]) -> Definition:
    """Return the schema of `tool_search` with the names of the hidden tools."""
    text = "; ".join(f"{toolset}: {', '.join(names)}" for toolset, names in sorted(hidden.items()))
    if len(text) > NAMED_CHARS:
        text = text[:NAMED_CHARS].rpartition(",")[0] + ", …"
    return {**schema, "description": f"{schema['description']} There are: {text}"}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]{2,}", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())


def _rank(query: str, functions: Sequence[Definition]) -> list[Definition]:
    """Return the functions that share a word with the query, best first.

    Rare words and words of the name count more.
    """
    texts = [
        Counter(
            4 * _words(f["name"])
            + _words(f.get("description") or "")
            + [word for name in f["parameters"].get("properties", {}) for word in _words(name)]
        )
        for f in functions
    ]
    wanted = set(_words(query))

    def matches(word: str, text: Counter[str]) -> int:
        return sum(n for have, n in text.items() if have == word or (len(word) > 3 and have.startswith(word[:-1])))

    spread = {word: sum(matches(word, text) > 0 for text in texts) for word in wanted}

    def score(text: Counter[str]) -> float:
        found = ((matches(word, text), spread[word]) for word in wanted)
        return sum(math.log(1 + len(texts) / of) * n / (n + 1) for n, of in found if n)

    scored = [(score(text), f) for text, f in zip(texts, functions, strict=True)]
    return [f for points, f in sorted(scored, key=lambda pair: (-pair[0], pair[1]["name"])) if points > 0]


def _schema(tool: str, about: str, required: Sequence[str], /, **properties: dict[str, Any]) -> Definition:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": tool, "description": about, "parameters": parameters}


_SEARCH = _schema(
    "tool_search",
    "Find further tools by what they do. Returns names, descriptions and parameters.",
    ["query"],
    query={"type": "string"},
    limit={"type": "integer"},
)
_DESCRIBE = _schema("tool_describe", "Show one further tool.", ["name"], name={"type": "string"})
_CALL = _schema(
    TOOL_CALL,
    "Call a further tool that tool_search found.",
    ["name", "arguments"],
    name={"type": "string"},
    arguments={"type": "object", "description": "As the tool's parameters say", "additionalProperties": True},
)
