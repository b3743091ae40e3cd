"""Web search and page reading over Tavily (`TAVILY_API_KEY`; `TAVILY_BASE_URL` for another address)."""

from __future__ import annotations

import os
from typing import Any

from hermes_agent.contracts.web import WebSearchProvider, search_result

TIMEOUT_S = 60.0
ADDRESS = "https://api.tavily.com"


class TavilyFailed(Exception):
    """Tavily gave no answer; the text says why."""


class Tavily(WebSearchProvider):
    """Searches and reads."""

    name = "tavily"

    def is_available(self) -> bool:
        return bool(os.environ.get("TAVILY_API_KEY"))

    def service_addresses(self) -> tuple[str, ...]:
        return (os.environ.get("TAVILY_BASE_URL", ADDRESS),)

    def supports_extract(self) -> bool:
        return True

    def search(self, query: str, limit: int = 5) -> dict[str, Any]:
        try:
            answer = _ask("search", {"query": query, "max_results": limit})
        except TavilyFailed as exc:
            return {"success": False, "error": str(exc)}
        return search_result([(r.get("title"), r.get("url"), r.get("content")) for r in answer.get("results") or []])

    def extract(self, urls: list[str], **kwargs: Any) -> dict[str, Any]:
        try:
            answer = _ask("extract", {"urls": urls, "format": "markdown"})
        except TavilyFailed as exc:
            return {"success": False, "error": str(exc)}
        pages = {r.get("url"): {"content": r.get("raw_content") or ""} for r in answer.get("results") or []}
        failed = {r.get("url"): {"error": str(r.get("error"))} for r in answer.get("failed_results") or []}
        none = {"error": "Tavily gave no answer for this address"}
        return {
            "success": True,
            "data": [
                {"url": url, "title": "", "content": "", "raw_content": ""}
                | (pages.get(url) or failed.get(url) or none)
                for url in urls
            ],
        }

    def get_setup_schema(self) -> dict[str, Any]:
        variable = {"key": "TAVILY_API_KEY", "prompt": "API key", "url": "https://app.tavily.com"}
        return {"name": self.display_name, "badge": "key", "tag": "search and reading", "env_vars": [variable]}


def _ask(what: str, body: dict[str, Any]) -> dict[str, Any]:
    import httpx  # 60 ms, and most processes search nothing

    address = os.environ.get("TAVILY_BASE_URL", ADDRESS).rstrip("/")
    headers = {"Authorization": f"Bearer {os.environ.get('TAVILY_API_KEY', '')}"}
    try:
        answer = httpx.post(f"{address}/{what}", json=body, headers=headers, timeout=TIMEOUT_S)
        if answer.status_code == 401:
            raise TavilyFailed("Tavily refuses the key: check TAVILY_API_KEY")
        if answer.status_code in (429, 432, 433):
            raise TavilyFailed("Tavily's limit for this key is reached")
        value = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as exc:
        raise TavilyFailed(f"Tavily did not answer: {exc}") from exc
    if not isinstance(value, dict):
        raise TavilyFailed("Tavily answered with something else than an object")
    return value


def register(ctx: Any) -> None:
    ctx.register_web_search_provider(Tavily())
