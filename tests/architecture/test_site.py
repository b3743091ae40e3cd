"""The documentation as a whole: every page is two clicks away, and the site works without a network."""

from __future__ import annotations

import html.parser
import posixpath
import re
import runpy
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOOLS = ROOT / ".cache" / "site" / "venv" / "bin" / "python"
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^( *)(```+)[^\n]*\n(.*?)^\1\2$\n?", re.MULTILINE | re.DOTALL)


def clicks(first: str, links: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Return how many clicks lead from the first page to each other one."""
    found, seen = {first: 0}, [first]
    for page in seen:
        for target in links.get(page, ()):
            if target not in found:
                found[target] = found[page] + 1
                seen.append(target)
    return found


def markdown_links(page: Path) -> set[str]:
    """Return the files that a page links, by their path in the repository."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = (target.partition("#")[0] for target in LINK.findall(text) if not re.match(r"[a-z]+:", target))
    folder = str(page.parent.relative_to(ROOT))
    return {posixpath.normpath(posixpath.join(folder, target)) for target in targets if target}


def test_every_page_is_at_most_two_clicks_from_the_first_one() -> None:
    pages = {str(page.relative_to(ROOT)): markdown_links(page) for page in DOCS.rglob("*.md")}
    away = clicks("docs/README.md", pages)
    assert {name: away.get(name) for name in pages if away.get(name, 99) > 2} == {}, "`make docs` lists it"
    assert len(pages) > 100


def test_the_list_of_pages_is_as_the_program_writes_it() -> None:
    page = runpy.run_path(str(DOCS / "contents_page.py"))
    text = (DOCS / "contents.md").read_text(encoding="utf-8")
    assert page["written"](text) == text, "`make docs` writes it again"


def test_the_first_page_is_five_tasks_with_commands_and_pictures() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    tasks = re.split(r"^## (?=\d\. )", text.partition("\n## More\n")[0], flags=re.MULTILINE)[1:]
    assert [task[0] for task in tasks] == ["1", "2", "3", "4", "5"]
    for task in tasks:
        assert re.search(r"^(make install|hermes \w+)", FENCE.search(task)[3], re.MULTILINE), task.splitlines()[0]  # type: ignore[index]
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert [task.splitlines()[0] for task in tasks if "<picture>" not in task] == []
    assert [name for name in pictures if not (DOCS / name).is_file()] == []
    loads = re.compile(r"""(?:href|src)=["']http|url\(["']?http""")
    assert [name for name in pictures if loads.search((DOCS / name).read_text(encoding="utf-8"))] == []


class Page(html.parser.HTMLParser):
    """The links, names and loaded files of one page of the site."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            self.loaded.append(values.get("href", ""))
        elif tag in ("script", "img", "source", "iframe"):
            self.loaded += [values[name] for name in ("src", "srcset") if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not TOOLS.exists():
        pytest.skip("the packages of requirements/docs.txt are not installed (`make site`)")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [TOOLS, DOCS / "site" / "build.py", out], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.timeout(400)
def test_the_site_loads_nothing_from_elsewhere_and_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    broken, elsewhere = [], []
    for path, page in pages.items():
        elsewhere += [(path.name, name) for name in page.loaded if re.match(r"(https?:)?//", name)]
        broken += [(path.name, name) for name in page.loaded if not (path.parent / name.partition("?")[0]).is_file()]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or not (parts.path or parts.fragment):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            other = pages.get(target)
            if not target.exists() or (parts.fragment and other and unquote(parts.fragment) not in other.ids):
                broken.append((str(path.relative_to(site)), link))
    assert elsewhere == [] and broken == []
    fetched = re.compile(r"@import\s+[\"'(]?\s*(?:url\()?[\"']?(?:https?:)?//|url\([\"']?(?:https?:)?//")
    assert [str(css) for css in site.rglob("*.css") if fetched.search(css.read_text(encoding="utf-8"))] == []

    links = {
        str(path.relative_to(site)): {
            str((path.parent / unquote(urlsplit(link).path)).resolve().relative_to(site.resolve()))
            for link in page.links
            if not urlsplit(link).scheme and urlsplit(link).path
        }
        for path, page in pages.items()
    }
    away = clicks("README.html", links)
    assert {
        name: away.get(name) for name in links if away.get(name, 99) > 2 and name not in ("index.html", "search.html")
    } == {}


@pytest.mark.timeout(400)
def test_the_site_has_a_search_index_a_dark_form_and_every_page(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")
    for name in ("operator/models", "plugins/guide", "project/SECURITY"):
        assert f'"{name}"' in index
    first = (site / "README.html").read_text(encoding="utf-8")
    assert "theme-toggle" in first and "prefers-color-scheme: dark" in first
    expected = {str(page.relative_to(DOCS).with_suffix(".html")) for page in DOCS.rglob("*.md")}
    assert {name for name in expected if not (site / name).is_file()} == set()
    code = re.findall(r'<div class="highlight-[^"]*"', (site / "operator" / "service.html").read_text(encoding="utf-8"))
    assert len(code) == len(FENCE.findall((DOCS / "operator" / "service.md").read_text(encoding="utf-8")))
