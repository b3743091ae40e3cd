"""Web search providers (docs/plugins/kinds/web_search.md): the suite, and who is selected."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from hermes_agent.contracts.web import WebSearchProvider, choose_web_search, extracted_pages
from hermes_agent.host import Host


class InMemory(WebSearchProvider):
    """One page; what it can do is said when it is made."""

    def __init__(
        self, name: str = "memory", *, available: bool = True, search: bool = True, extract: bool = True
    ) -> None:
        self._name, self._available, self._search, self._extract = name, available, search, extract

    @property
    def name(self) -> str:
        return self._name

    def is_available(self) -> bool:
        return self._available

    def supports_search(self) -> bool:
        return self._search

    def supports_extract(self) -> bool:
        return self._extract

    def search(self, query: str, limit: int = 5) -> dict[str, Any]:
        if not query.strip():
            return {"success": False, "error": "empty"}
        page = {"title": "Otters", "url": "https://example.org/otter", "description": "They eat fish", "position": 1}
        return {"success": True, "data": {"web": [page][:limit]}}

    def extract(self, urls: list[str], **kwargs: Any) -> Any:
        return {"success": True, "data": [{"url": u, "title": "t", "content": "c", "raw_content": "c"} for u in urls]}


@pytest.fixture(params=["in memory", "example plugin"])
def provider(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> WebSearchProvider:
    """Every implementation."""
    made = InMemory() if request.param == "in memory" else example("web_search")
    assert isinstance(made, WebSearchProvider)
    return made


def test_it_says_who_it_is_and_what_it_can_do(provider: WebSearchProvider) -> None:
    assert provider.name == provider.name.strip().lower()
    assert provider.display_name
    assert provider.is_available() is True
    assert provider.supports_search() or provider.supports_extract()
    assert {"name", "badge", "tag", "env_vars"} <= set(provider.get_setup_schema())


def test_a_search_answers_at_most_limit_pages_in_order(provider: WebSearchProvider) -> None:
    answer = provider.search("fish", 1)

    assert answer["success"] is True
    (page,) = answer["data"]["web"]
    assert set(page) == {"title", "url", "description", "position"}
    assert (page["position"], page["url"].partition(":")[0]) == (1, "https")


def test_a_search_that_fails_says_why_and_does_not_raise(provider: WebSearchProvider) -> None:
    answer = provider.search(" ")

    assert answer["success"] is False
    assert answer["error"]


async def test_pages_are_read_one_for_each_address(provider: WebSearchProvider) -> None:
    urls = ["https://example.org/otter", "https://example.org/fish"]

    answer = provider.extract(urls)
    pages = extracted_pages(await answer if inspect.iscoroutine(answer) else answer, urls)

    assert [page["url"] for page in pages] == urls
    assert all({"title", "content", "raw_content"} <= set(page) for page in pages)


def test_what_a_provider_does_not_do_raises_and_names_it() -> None:
    class Bare(WebSearchProvider):
        name = "bare-one"

        def is_available(self) -> bool:
            return True

    assert (Bare().supports_search(), Bare().supports_extract(), Bare().display_name) == (True, False, "Bare One")
    with pytest.raises(NotImplementedError, match="'bare-one' does not support search"):
        Bare().search("x")
    with pytest.raises(NotImplementedError, match="'bare-one' does not support extract"):
        Bare().extract([])
    with pytest.raises(TypeError, match="is_available"):
        type("Nothing", (WebSearchProvider,), {"name": "x"})()


def test_pages_of_accepts_both_shapes_and_refuses_others() -> None:
    assert extracted_pages([{"url": "a"}], ["a"]) == [{"url": "a"}]
    assert extracted_pages({"success": True, "data": [{"url": "a"}]}, ["a"]) == [{"url": "a"}]
    assert extracted_pages({"success": False, "error": "no"}, ["a", "b"])[1] == {
        "url": "b",
        "title": "",
        "content": "",
        "raw_content": "",
        "error": "no",
    }
    with pytest.raises(TypeError, match="returned str: expected a list of pages"):
        extracted_pages("text", ["a"])


def test_the_config_selects_for_each_task_then_for_both_then_by_preference() -> None:
    both, seeker = InMemory("zz"), InMemory("ddgs", extract=False)
    broken = type("Broken", (InMemory,), {"is_available": lambda self: 1 / 0})("exa")
    providers = {p.name: p for p in (both, broken, seeker)}

    def choose(extract: bool = False, **web: str) -> tuple[Any, str]:
        provider, why = choose_web_search(providers, {"web": web}, extract=extract)
        return provider and provider.name, why

    assert choose(search_backend="zz", backend="ddgs")[0] == "zz"
    assert choose(extract_backend="zz", backend="ddgs")[0] == "ddgs"
    assert choose()[0] == "ddgs"  # before `zz`, by preference; `exa` raises
    assert choose(extract=True)[0] == "zz"
    assert choose(backend="exa")[0] == "exa"  # named, so that its own error is seen
    assert choose(extract=True, backend="ddgs") == (None, "web.backend names `ddgs`, which does not read pages")
    assert choose(search_backend="gone") == (
        None,
        "web.search_backend='gone' is set but no plugin registered that name. Run `hermes plugins list` to see "
        "available web backends.",
    )
    assert choose_web_search({}, {}) == (None, "none is available")


def test_the_host_selects_what_its_config_names(start: Callable[..., Host]) -> None:
    host = start("web_search", config="web:\n  backend: example-shelf\n")

    provider, why = host.providers.choose("web_search", host.config.values)

    assert (provider.name, why) == ("example-shelf", "web.backend names it")
    assert "(1 providers)" in host.plugins.status_text()


def test_get_provider_env_reads_what_the_agent_reads(
    start: Callable[..., Host], home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    from agent.web_search_provider import WebSearchProvider as upstream
    from agent.web_search_provider import get_provider_env

    (home / ".env").write_text("SEARCH_KEY=' from-file '\n")
    assert (get_provider_env("SEARCH_KEY"), get_provider_env("SEARCH_NONE")) == ("from-file", "")
    monkeypatch.setenv("SEARCH_KEY", " from-environment ")
    assert get_provider_env("SEARCH_KEY") == "from-environment"
    assert upstream is WebSearchProvider
