"""Web search over SearXNG (`SEARXNG_URL`); the instance must allow `format=json`."""

from __future__ import annotations

import os
from typing import Any

from hermes_agent.contracts.web import WebSearchProvider, search_result

TIMEOUT_S = 20.0


class Searxng(WebSearchProvider):
    """An instance that the operator runs or trusts."""

    name = "searxng"
    display_name = "SearXNG"

    def is_available(self) -> bool:
        return bool(os.environ.get("SEARXNG_URL"))

    def service_addresses(self) -> tuple[str, ...]:
        return (os.environ.get("SEARXNG_URL", ""),)

    def search(self, query: str, limit: int = 5) -> dict[str, Any]:
        import httpx  # 60 ms, and most processes search nothing

        address = os.environ.get("SEARXNG_URL", "").rstrip("/")
        if not address:
            return {"success": False, "error": "SEARXNG_URL is not set: the address of your instance"}
        try:
            answer = httpx.get(f"{address}/search", params={"q": query, "format": "json"}, timeout=TIMEOUT_S)
            if answer.status_code == 403:
                return {"success": False, "error": f"{address} refuses JSON: add `json` to search.formats there"}
            results = answer.raise_for_status().json().get("results") or []
        except (httpx.HTTPError, ValueError, AttributeError) as exc:
            return {"success": False, "error": f"{address} did not answer as SearXNG does: {exc}"}
        return search_result([(r.get("title"), r.get("url"), r.get("content")) for r in results[:limit]])

    def get_setup_schema(self) -> dict[str, Any]:
        variable = {"key": "SEARXNG_URL", "prompt": "Address of the instance", "default": "http://127.0.0.1:8888"}
        return {"name": self.display_name, "badge": "free", "tag": "an instance of your own", "env_vars": [variable]}


def register(ctx: Any) -> None:
    ctx.register_web_search_provider(Searxng())
