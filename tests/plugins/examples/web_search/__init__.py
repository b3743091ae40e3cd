"""Searches and reads three pages that it knows."""

from agent.web_search_provider import WebSearchProvider

PAGES = {
    "https://example.org/otter": ("Otters", "Otters eat fish."),
    "https://example.org/fish": ("Fish", "Fish swim."),
    "https://example.org/stone": ("Stones", "Stones lie."),
}


class Shelf(WebSearchProvider):
    """Knows `PAGES`."""

    @property
    def name(self):
        return "example-shelf"

    def is_available(self):
        return True

    def supports_extract(self):
        return True

    def search(self, query, limit=5):
        if not query.strip():
            return {"success": False, "error": "the query is empty"}
        found = [(u, t, x) for u, (t, x) in PAGES.items() if query.lower() in f"{t} {x}".lower()]
        web = [
            {"title": title, "url": url, "description": text, "position": number}
            for number, (url, title, text) in enumerate(found[:limit], 1)
        ]
        return {"success": True, "data": {"web": web}}

    async def extract(self, urls, **kwargs):
        return [self._page(url) for url in urls]

    def _page(self, url):
        if url not in PAGES:
            return {"url": url, "title": "", "content": "", "raw_content": "", "error": "no such page"}
        title, text = PAGES[url]
        return {"url": url, "title": title, "content": text, "raw_content": text}


def register(ctx):
    ctx.register_web_search_provider(Shelf())
