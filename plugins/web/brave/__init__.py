"""Web search over Brave's API (`BRAVE_SEARCH_API_KEY`; `BRAVE_SEARCH_URL` for another address)."""

from __future__ import annotations

import os
from typing import Any

from hermes_agent.contracts.web import WebSearchProvider, search_result

TIMEOUT_S = 20.0
ADDRESS = "https://api.search.brave.com"
MOST = 20
"""The API gives no more at once."""


class Brave(WebSearchProvider):
    """Brave's index."""

    name = "brave-free"
    display_name = "Brave Search"

    def is_available(self) -> bool:
        return bool(os.environ.get("BRAVE_SEARCH_API_KEY"))

    def service_addresses(self) -> tuple[str, ...]:
        return (ADDRESS,)

    def search(self, query: str, limit: int = 5) -> dict[str, Any]:
        import httpx  # 60 ms, and most processes search nothing

        address = os.environ.get("BRAVE_SEARCH_URL", ADDRESS).rstrip("/")
        headers = {"X-Subscription-Token": os.environ.get("BRAVE_SEARCH_API_KEY", ""), "Accept": "application/json"}
        try:
            answer = httpx.get(
                f"{address}/res/v1/web/search",
                params={"q": query, "count": min(limit, MOST)},
                headers=headers,
                timeout=TIMEOUT_S,
            )
            if answer.status_code in (401, 422):
                return {"success": False, "error": "Brave refuses the key: check BRAVE_SEARCH_API_KEY"}
            if answer.status_code == 429:
                return {"success": False, "error": "Brave's rate limit is reached: try again later"}
            results = (answer.raise_for_status().json().get("web") or {}).get("results") or []
        except (httpx.HTTPError, ValueError, AttributeError) as exc:
            return {"success": False, "error": f"Brave did not answer: {exc}"}
        return search_result([(r.get("title"), r.get("url"), r.get("description")) for r in results[:limit]])

    def get_setup_schema(self) -> dict[str, Any]:
        variable = {"key": "BRAVE_SEARCH_API_KEY", "prompt": "API key", "url": "https://brave.com/search/api/"}
        return {"name": self.display_name, "badge": "key", "tag": "an index of its own", "env_vars": [variable]}


def register(ctx: Any) -> None:
    ctx.register_web_search_provider(Brave())
