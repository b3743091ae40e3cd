"""The page of proposals: signing in, what it shows, and that only what was shown is accepted."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import html
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hermes_agent.hooks import HookBus
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.server.proposal_page import MAX_ATTEMPTS, SESSION_S, ProposalPage
from hermes_agent.skills import PluginSkills, SkillLibrary
from hermes_agent.skills.library import SkillSettings
from hermes_agent.skills.skill_changes import SkillEditor
from hermes_agent.tools.proposals import Proposal, Proposals
from unit.server.scripted_door import KEY, LIMIT_S, Running, echo, serving

TEXT = "---\nname: tea\ndescription: Brew tea\n---\nWarm the pot.\nPour.\n"
EVIL = '<script>document.title="owned"</script><img src=x onerror=alert(1)>'


class PageBench:
    """Proposals of skills of a home, and their page on a real server."""

    def __init__(self, home: Path) -> None:
        self.home, self.now = home, 1_000.0
        self.bridge = Bridge()
        library = SkillLibrary(
            home,
            SkillSettings(),
            plugins=PluginSkills(),
            hooks=HookBus(self.bridge.wait_plugin),
            has_value=lambda name: True,
            disabled_plugins=list,
        )
        self.proposals = Proposals(home)
        self.editor = SkillEditor(library, lambda: 100)
        self.proposals.serve("skill", self.editor)
        page = ProposalPage(self.proposals, KEY, self.bridge.run, clock=lambda: self.now)
        self.pages = page.routes()

    def propose(self, title: str = "", reason: str = "", **operation: Any) -> Proposal:
        changes = self.editor.plan([{"name": "tea", "action": "create", "content": TEXT, **operation}])
        return self.proposals.add("skill", title or "create tea", self.editor.encode(changes), reason=reason)

    def skill(self, name: str = "tea") -> Path:
        return self.home / "skills" / name / "SKILL.md"

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[httpx.AsyncClient, Running]]:
        async with (
            serving(echo, pages=self.pages, allowed_origins=frozenset({"https://other.example"})) as running,
            httpx.AsyncClient(base_url=running.url, timeout=LIMIT_S) as http,
        ):
            yield http, running


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PageBench]:
    made = PageBench(tmp_path)
    yield made
    made.bridge.close()


async def sign_in(http: httpx.AsyncClient, key: str = KEY) -> httpx.Response:
    return await http.post("/proposals/sign-in", data={"key": key})


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return html.unescape(found[1])


def form(page: str, action: str) -> dict[str, str]:
    return {"token": field(page, "token"), "shown": field(page, "shown"), "action": action}


async def test_the_key_opens_the_page_and_accepting_makes_the_change(world: PageBench) -> None:
    proposal = world.propose(reason="It was asked twice.")
    async with world.open() as (http, _):
        closed = await http.get("/proposals")
        assert closed.status_code == 401 and 'type="password"' in closed.text and "tea" not in closed.text
        opened = await sign_in(http)
        assert (opened.status_code, opened.headers["location"]) == (303, "/proposals")
        cookie = opened.headers["set-cookie"]
        assert cookie.endswith(f"; Path=/proposals; Max-Age={SESSION_S:.0f}; HttpOnly; SameSite=Strict")
        assert KEY not in cookie
        listed = (await http.get("/proposals")).text
        assert f'<a href="/proposals/{proposal.id}">create tea</a>' in listed and "It was asked twice." in listed
        page = (await http.get(f"/proposals/{proposal.id}")).text
        assert '<span class="add">+Warm the pot.</span>' in page and "a tool call of the agent" in page
        done = await http.post(f"/proposals/{proposal.id}", data=form(page, "accept"))
        assert (done.status_code, done.headers["location"]) == (303, "/proposals")
        assert world.skill().read_text() == TEXT
        after = (await http.get("/proposals")).text
        assert "hermes skills revert tea" in after and "No proposal waits." in after
        assert "hermes skills revert tea" not in (await http.get("/proposals")).text
        again = await http.post(f"/proposals/{proposal.id}", data=form(page, "accept"))
        assert again.status_code == 409 and "it was answered, or has expired" in again.text


async def test_rejecting_deletes_the_proposal_and_changes_nothing(world: PageBench) -> None:
    proposal = world.propose()
    async with world.open() as (http, _):
        await sign_in(http)
        page = (await http.get(f"/proposals/{proposal.id}")).text
        await http.post(f"/proposals/{proposal.id}", data=form(page, "reject"))
        assert "Rejected: create tea." in (await http.get("/proposals")).text
    assert world.proposals.all() == [] and not world.skill().exists()


@pytest.mark.attack("interfaces")
async def test_without_a_session_or_its_token_nothing_is_shown_and_nothing_happens(world: PageBench) -> None:
    proposal = world.propose()
    address = f"/proposals/{proposal.id}"
    async with world.open() as (http, _):
        for path in ("/proposals", address, "/proposals/none"):
            assert [(await http.get(path)).status_code, "tea" in (await http.get(path)).text] == [401, False]
        assert (await http.post(address, data={"action": "accept"})).status_code == 401
        assert (await http.get("/proposals", headers={"Cookie": "hermes_proposals=guess"})).status_code == 401
        assert (await http.get("/proposals", headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert (await http.get("/proposalsx")).status_code == 401
        assert (await sign_in(http, "wrong")).status_code == 401
        await sign_in(http)
        page = (await http.get(address)).text
        right = form(page, "accept")
        for wrong in ({**right, "token": "guess"}, {**right, "token": ""}, {"action": "accept"}):
            assert (await http.post(address, data=wrong)).status_code == 403
        assert (await http.post(address, data={**right, "action": "run"})).status_code == 400
        assert (await http.post(address, data={**right, "shown": ""})).status_code == 409
        for origin, status in (("https://evil.example", 403), ("https://other.example", 403), ("null", 403)):
            assert (await http.post(address, data=right, headers={"Origin": origin})).status_code == status
        assert (await http.post(address, content=b"x" * 20_000)).status_code == 413
        assert (await http.post(address, content=b"\xff=1")).status_code == 403
        # the session of one browser is none of another's, and ends when it is signed out
        assert (await http.post("/proposals/sign-out", data=right)).status_code == 303
        assert (await http.get("/proposals")).status_code == 401
    assert not world.skill().exists() and world.proposals.all() == [proposal]


async def test_a_session_ends_after_its_time_and_wrong_keys_have_to_wait(world: PageBench) -> None:
    async with world.open() as (http, _):
        await sign_in(http)
        world.now += SESSION_S
        assert (await http.get("/proposals")).status_code == 401
        for _ in range(MAX_ATTEMPTS):
            assert (await sign_in(http, "wrong")).status_code == 401
        late = await sign_in(http)
        assert late.status_code == 429 and 0 < int(late.headers["retry-after"]) <= 61
        world.now += 61
        assert (await sign_in(http)).status_code == 303


async def test_the_key_in_a_header_reads_the_page_and_answers(world: PageBench) -> None:
    proposal = world.propose()
    async with world.open() as (http, running):
        page = (await http.get(f"/proposals/{proposal.id}", headers=running.headers)).text
        answer = await http.post(f"/proposals/{proposal.id}", data=form(page, "accept"), headers=running.headers)
        assert answer.status_code == 303 and world.skill().exists()


async def test_what_changed_since_it_was_shown_is_shown_again(world: PageBench) -> None:
    world.editor.apply(world.editor.encode(world.editor.plan([{"name": "tea", "action": "create", "content": TEXT}])))
    proposal = world.propose("patch tea", action="patch", old_string="Pour.", new_string="Wait.")
    address = f"/proposals/{proposal.id}"
    async with world.open() as (http, _):
        await sign_in(http)
        first = form((await http.get(address)).text, "accept")
        world.skill().write_text(TEXT.replace("Warm", "Rinse"))
        stale = await http.post(address, data=first)
        assert stale.status_code == 409 and "has changed since it was shown" in stale.text
        assert "It cannot be accepted any more" in stale.text and 'value="accept"' not in stale.text
        world.skill().write_text(TEXT)
        # the same change with another reason is another signature
        world.proposals.reject(proposal)
        world.propose("patch tea", "Because.", action="patch", old_string="Pour.", new_string="Wait.")
        renewed = await http.post(address, data=first)
        assert renewed.status_code == 409 and "Because." in renewed.text
        assert "Pour." in world.skill().read_text()
        assert (await http.post(address, data=form(renewed.text, "accept"))).status_code == 303
    assert "Wait." in world.skill().read_text()


@pytest.mark.attack("interfaces")
async def test_text_of_the_agent_is_text_and_the_page_has_no_script(world: PageBench) -> None:
    content = f"{TEXT}{EVIL}\nAUTH=sk-ant-api03-{'a' * 60}\n"
    proposal = world.propose(f"create {EVIL}", f"{EVIL}\u202edesrever", content=content)
    async with world.open() as (http, _):
        await sign_in(http)
        listed, page = await http.get("/proposals"), await http.get(f"/proposals/{proposal.id}")
    for answer in (listed, page):
        assert "<script" not in answer.text and "<img" not in answer.text and "&lt;script&gt;" in answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src" not in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy
        assert answer.headers["cache-control"] == "no-store"
    assert "\u202e" not in page.text and "\\u202edesrever" in page.text
    assert "a" * 60 not in page.text


# -- in a browser ----------------------------------------------------------------------------------------------


class Browser:
    """Chromium, driven over WebDriver."""

    def __init__(self, http: httpx.AsyncClient, session: str) -> None:
        self._http, self._session = http, session

    async def ask(self, path: str, body: Any = None, method: str = "POST") -> Any:
        answer = await self._http.request(method, f"/session/{self._session}{path}", json=body)
        value = answer.json()["value"]
        assert answer.status_code == 200, value
        return value

    async def run(self, script: str) -> Any:
        return await self.ask("/execute/sync", {"script": script, "args": []})

    async def find(self, css: str) -> str:
        return str(next(iter((await self.ask("/element", {"using": "css selector", "value": css})).values())))

    async def click(self, css: str) -> None:
        """Click what leads to another page, and return when that is loaded."""
        await self.run("window.isOld = true")
        await self.ask(f"/element/{await self.find(css)}/click", {})
        async with asyncio.timeout(60):
            while not await self._is_loaded():
                continue

    async def _is_loaded(self) -> bool:
        script = "return window.isOld !== true && document.readyState === 'complete'"
        body = {"script": script, "args": []}
        answer = await self._http.post(f"/session/{self._session}/execute/sync", json=body)
        return answer.status_code == 200 and answer.json()["value"] is True  # between two pages there is none

    async def text(self) -> str:
        return str(await self.ask(f"/element/{await self.find('body')}/text", method="GET"))


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Browser]:
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        pytest.skip("no browser: `apt install chromium chromium-driver` installs one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = await asyncio.create_subprocess_exec(driver, f"--port={port}", **silent)
    arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}",
    ]
    options: Any = {"goog:chromeOptions": {"binary": program, "args": arguments}}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as http:
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        if (await http.get("/status")).json()["value"]["ready"]:
                            break
                    await asyncio.sleep(0.05)
            made = await http.post("/session", json={"capabilities": {"alwaysMatch": options}})
            assert made.status_code == 200, made.text
            session = made.json()["value"]["sessionId"]
            try:
                yield Browser(http, session)
            finally:
                await http.delete(f"/session/{session}")
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def test_a_browser_signs_in_reads_and_accepts_on_a_narrow_screen(world: PageBench, tmp_path: Path) -> None:
    wide = f"{TEXT}{'wide ' * 80}{EVIL}\n"
    proposal = world.propose(f"create tea {EVIL}", content=wide)
    async with browser(tmp_path / "browser") as page, world.open() as (_, running):
        await page.ask("/window/rect", {"width": 500, "height": 900})
        await page.ask("/url", {"url": f"{running.url}/proposals"})
        await page.ask(f"/element/{await page.find('#key')}/value", {"text": KEY})
        await page.click("main button")
        assert "create tea <script>" in await page.text()
        (cookie,) = await page.ask("/cookie", method="GET")
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/proposals")
        assert await page.run("return document.cookie") == ""
        await page.click("li a")
        assert await page.ask("/title", method="GET") == "Proposal – hermes-agent"
        # no sideways scrolling of the page; the diff scrolls by itself
        assert await page.run("return document.documentElement.scrollWidth <= innerWidth")
        assert await page.run("const pre = document.querySelector('pre'); return pre.scrollWidth > pre.clientWidth")
        light = await page.run("return getComputedStyle(document.querySelector('.add')).color")
        await page.ask(
            "/goog/cdp/execute",
            {
                "cmd": "Emulation.setEmulatedMedia",
                "params": {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
            },
        )
        assert await page.run("return getComputedStyle(document.querySelector('.add')).color") != light
        shot = await page.ask("/screenshot", method="GET")
        (tmp_path / "page.png").write_bytes(base64.b64decode(shot))
        await page.click('button[value="accept"]')
        assert "hermes skills revert tea" in await page.text()
        assert world.skill().read_text() == wide and world.proposals.all() == []
        await page.click("header button")
        assert "Key of the server" in await page.text()
        await page.ask("/url", {"url": f"{running.url}/proposals/{proposal.id}"})
        assert "Key of the server" in await page.text()
