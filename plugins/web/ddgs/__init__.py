"""Web search without a key, over the package `ddgs` (the extra `ddgs`)."""

from __future__ import annotations

import importlib.util
from typing import Any

from hermes_agent.contracts.kind import install_hint
from hermes_agent.contracts.web import WebSearchProvider, search_result


class Ddgs(WebSearchProvider):
    """Several public engines, by the package's own choice."""

    name = "ddgs"
    display_name = "DDGS"

    def is_available(self) -> bool:
        return importlib.util.find_spec("ddgs") is not None

    def search(self, query: str, limit: int = 5) -> dict[str, Any]:
        try:
            from ddgs import DDGS  # slow, and most processes search nothing
            from ddgs.exceptions import DDGSException
        except ImportError:
            return {"success": False, "error": f"the package ddgs is not there: {install_hint('ddgs')}"}
        try:
            results = DDGS(timeout=20).text(query, max_results=limit)
        except DDGSException as exc:
            return {"success": False, "error": f"the search failed: {exc}"}
        return search_result([(r.get("title"), r.get("href"), r.get("body")) for r in results])

    def get_setup_schema(self) -> dict[str, Any]:
        return {"name": self.display_name, "badge": "free", "tag": "no key, no promise", "env_vars": []}


def register(ctx: Any) -> None:
    ctx.register_web_search_provider(Ddgs())
