"""A real daemon to attack: a process with a home of its own, or the unit of a booted systemd.

The model server runs here, on the real wire, and asks for the calls of an attempt; so do a web server, one that nobody
may reach, a chat service and sockets, which note what reaches them. In the container of `tests/service` the same code
drives the packaged units (`HERMES_ATTACK_PLACE=systemd`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from attack.attempt import CONTROL, CREDENTIAL, PAGE, SECRET, Attempt, Call
from hermes_agent.testing import ScriptedModel, call, served
from peers.lines import LINE_PLUGIN, LineServer, line_server
from peers.running import free_port, running

PLACE = os.environ.get("HERMES_ATTACK_PLACE", "daemon")
KEY = "key-of-these-attacks-0123456789"
REQUESTS = 20_000
"""More than a run makes."""
WAIT_S = 60.0
HIDDEN = (".ssh/id_ed25519", ".aws/credentials", ".netrc", ".config/gh/hosts.yml", ".password-store/mail.gpg")
OWN = (".env", "auth.json", "memories/notes.txt", "pairing/codes.json")
SOCKETS = ("project/app.sock", ".gnupg/S.gpg-agent", "Documents/x.sock")
OPEN = {
    "approvals": {"mode": "off", "cron_mode": "approve"},
    "command_allowlist": ["*"],
}
"""An operator who allows everything: what holds then is the sandbox, the broker and the decision about leaving."""
ASKING = {"approvals": {"mode": "manual", "gateway_timeout": 60}, "command_allowlist": ["curl *"]}
"""The defaults, but for the model that would look at commands first, and for the program that sends."""
SETTINGS: dict[str, dict[str, Any]] = {"open": OPEN, "asking": ASKING}


class Canary(ThreadingHTTPServer):
    """A web server that notes each request and each connection."""

    daemon_threads = True

    def __init__(self) -> None:
        self.hits: list[str] = []
        self.elsewhere = ""  # where `/redirect` leads
        super().__init__(("0.0.0.0", 0), Visit)
        self.address = f"{own_address()}:{self.port}"

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        self.hits.append("a connection")
        return True


class Visit(BaseHTTPRequestHandler):
    """`/page` is a hostile page, `/redirect` leads elsewhere, and everything else says `CONTROL`."""

    server: Canary

    def do_GET(self) -> None:
        self.server.hits.append(self.path)
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", self.server.elsewhere)
            self.end_headers()
            return
        page = PAGE.replace("{own}:{listed}", self.server.address) if self.path.startswith("/page") else CONTROL
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(page.encode())))
        self.end_headers()
        self.wfile.write(page.encode())

    do_POST = do_PUT = do_GET

    def log_message(self, *args: Any) -> None: ...


class AttackedDaemon:
    """A running daemon, what it is told, and what came of it.

    Attributes:
        names: what stands for `{name}` in calls: paths and ports.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        under_systemd = PLACE == "systemd"
        self.user = Path("/var/lib/hermes") if under_systemd else folder / "user"
        self.home = self.user / ".hermes"
        self.work = self.user / ("workspace" if under_systemd else "project")
        self.outside = Path("/srv/outside") if under_systemd else self.user / ".outside"
        self.kind = kind
        self.canary, self.listed = Canary(), Canary()
        self.port = 8642 if under_systemd else free_port()
        self.model = ScriptedModel(*[self._answer] * REQUESTS)
        self.scripts: dict[str, tuple[Call, ...]] = {}
        self.results: dict[str, list[str]] = {}
        self.chat: LineServer
        self._count = 0
        self._daemon = contextlib.ExitStack()
        self.names = {
            "{user}": str(self.user),
            "{home}": str(self.home),
            "{work}": str(self.work),
            "{outside}": str(self.outside),
            "{port}": str(self.canary.port),
            "{listed}": str(self.listed.port),
            "{own}": own_address(),
            "{abstract}": f"hermes-attacked-{os.getpid()}-{kind}",
        }

    # -- the model ------------------------------------------------------------------------------------------------

    def _answer(self, request: dict[str, Any]) -> Any:
        """Return the next call of the script that the last user message names, or the last word."""
        messages = request["messages"]
        last = max((n for n, one in enumerate(messages) if one["role"] == "user"), default=0)
        found = re.search(r"attempt (\w+)", json.dumps(messages[last]["content"]))
        if found is None or not request.get("tools"):
            return "Nothing to do."
        results = [str(one["content"]) for one in messages[last:] if one["role"] == "tool"]
        self.results[found[1]] = results
        script = self.scripts[found[1]]
        if len(results) == len(script):
            return "It is done."
        text = json.dumps(script[len(results)][1])
        for name, key in (("{process}", "session_id"), ("{job}", "id")):  # what an earlier call has made
            made = re.findall(rf'"{key}": ?"([^"]+)"', "".join(results)) or [""]
            text = text.replace(name, made[-1])
        return call(script[len(results)][0], json.loads(text))

    def script(self, calls: Sequence[Call]) -> str:
        """Let the model make these calls when a message names the returned word."""
        self._count += 1
        name = f"{self.kind}{self._count}"
        self.scripts[name] = tuple((tool, self.filled(arguments)) for tool, arguments in calls)
        return name

    def filled(self, value: Any) -> Any:
        """Return a value with paths and ports in it."""
        if isinstance(value, str):
            for name, text in self.names.items():
                value = value.replace(name, text)
            for inner in re.findall(r"\{script:(\d+)\}", value):  # calls of a subagent or of a job
                value = value.replace(f"{{script:{inner}}}", self.inner[int(inner)])
            return value
        if isinstance(value, Mapping):
            return {name: self.filled(one) for name, one in value.items()}
        return [self.filled(one) for one in value] if isinstance(value, list | tuple) else value

    # -- what is tried ---------------------------------------------------------------------------------------------

    def told(self, calls: Sequence[Call], inner: Sequence[Sequence[Call]] = (), says: str = "") -> str:
        """Have calls made in a turn over HTTP; return all that the model and the caller were shown."""
        self.inner = [f"attempt {self.script(one)}" for one in inner]
        name = self.script(calls)
        before = len(self.model.requests)
        answer = self.ask(f"attempt {name} {self.filled(says)}".strip())
        assert len(self.results.get(name, ())) == len(calls), f"the calls were not all made: {answer}"
        for one in self.inner:  # a job runs after the turn that made it
            self.until(lambda one=one: len(self.results.get(one.split()[1], ())) == len(self.scripts[one.split()[1]]))
        shown = [request["messages"] for request in self.model.requests[before:]]
        return json.dumps([[one["content"] for one in each] for each in shown], ensure_ascii=False) + answer

    def ask(self, text: str, **headers: str) -> str:
        """Say something over HTTP and return the answer."""
        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": text}]}
        return self.http().post("/v1/chat/completions", json=body, headers=headers).text

    def http(self, key: str = KEY) -> httpx.Client:
        """Return a client of the daemon."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=120)

    def until(self, done: Callable[[], bool]) -> None:
        """Wait for something that has to come."""
        end = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < end, f"it did not come: {list(self.results.items())[-2:]}"
            time.sleep(0.05)

    def tried(self, attempt: Attempt) -> list[str]:
        """Make an attempt; return what got through."""
        self.reset()
        made = [Path(self.filled(path)) for path in attempt.made]
        keeps = {path: path.read_bytes() for path in (Path(self.filled(one)) for one in attempt.keeps)}
        before, reached = len(self.canary.hits), len(self.listed.hits)
        shown = self.told(attempt.calls, attempt.inner, attempt.says)
        through = [f"{text!r} is shown: …{shown[max(shown.find(text) - 300, 0) : shown.find(text) + 100]}…"
                   for text in attempt.leaks if text in shown]  # fmt: skip
        through += [f"{path} is made" for path in made if os.path.lexists(path)]
        through += [
            f"{path} is changed" for path, was in keeps.items() if not path.exists() or path.read_bytes() != was
        ]
        through += [f"what nobody may reach was: {self.canary.hits[before:]}"] if len(self.canary.hits) > before else []
        through += [f"the page {one} was opened" for one in self.listed.hits[reached:] if "leak" in one]
        return through

    def works(self, attempt: Attempt) -> str:
        """Go the same way without the attack; return what was shown where it does not work, else nothing."""
        self.reset()
        reached = len(self.listed.hits)
        shown = self.told(attempt.control, attempt.control_inner, attempt.control_says)
        made = all(Path(self.filled(path)).exists() for path in attempt.control_made)
        came = all(path in self.listed.hits[reached:] for path in attempt.control_hits)
        if made and came and all(text in shown for text in attempt.control_shows):
            return ""
        return "\n".join([one for results in self.results.values() for one in results][-len(attempt.control) :])

    # -- the world -------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Make the working directory as it was."""
        for path in self.work.iterdir():
            if path.suffix != ".sock":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.work / "notes.txt").write_text(f"{CONTROL}\n")
        (self.work / "build").mkdir()
        (self.work / "build" / "kept").write_text("kept")
        subprocess.run(["git", "init", "-q", self.work / "repo"], check=True)
        self._given(self.work)

    def _given(self, *paths: Path) -> None:
        """Give files to the daemon's user."""
        if PLACE == "systemd":
            for path in paths:
                group = "hermes-work" if path == self.work else "hermes"
                subprocess.run(["chown", "-R", f"hermes:{group}", path], check=True)
                if path == self.work:
                    subprocess.run(["chmod", "-R", "g+rwX", path], check=True)

    def _furnish(self) -> None:
        for name in HIDDEN:
            _write(self.user / name, f"{SECRET}\n")
        for name in OWN:
            text = {".env": f"# {SECRET}\n", "auth.json": json.dumps({"note": SECRET})}.get(name, f"{SECRET}\n")
            _write(self.home / name, text)
        with (self.home / ".env").open("a") as file:
            file.write(f"ATTACKED_TOKEN={CREDENTIAL}\nOPENAI_API_KEY=none\nAPI_SERVER_KEY={KEY}\n")
            file.write(f"LINES_SERVER={self.chat.address}\n")
        (self.home / ".env").chmod(0o600)
        _write(self.home / "plugins/lines/__init__.py", LINE_PLUGIN)
        _write(self.home / "plugins/lines/plugin.yaml", "name: lines\n")
        _write(self.outside / "secret", f"{SECRET}\n")
        self.work.mkdir(parents=True, exist_ok=True)

    def _config(self, base_url: str) -> dict[str, Any]:
        terminal: dict[str, Any] = {"network": "hosts", "sandbox": "systemd"}
        if PLACE != "systemd":
            small = {"sandbox_memory_mb": 300, "sandbox_processes": 60, "sandbox_tmp_mb": 32}
            terminal |= {"sandbox": "bwrap", "cwd": str(self.work), **small}
        return {
            "model": {"provider": "custom", "base_url": base_url, "default": self.model.name},
            "auxiliary": {"title_generation": {"enabled": False}},
            "plugins": {"enabled": ["lines"]},
            "platforms": {"lines": {"allow_from": ["ann", "bob"]}},
            "terminal": terminal,
            "network": {"hosts": [f"{self.names['{own}']}:{self.listed.port}"]},
            "server": {"port": self.port},
            **SETTINGS[self.kind],
        }

    @contextlib.contextmanager
    def serving(self) -> Iterator[AttackedDaemon]:
        """Run everything while the block lasts."""
        self.canary.elsewhere = self.listed.elsewhere = f"http://127.0.0.1:{self.canary.port}/leak"
        with contextlib.ExitStack() as stack:
            for server in (self.canary, self.listed):
                threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
                stack.callback(server.server_close)
                stack.callback(server.shutdown)
            base_url = stack.enter_context(served(self.model))
            self.chat = stack.enter_context(line_server())
            stack.callback(lambda: self.chat.writer and self.chat.writer.close())
            self._furnish()
            for path in (*(self.user / name for name in SOCKETS), f"\0{self.names['{abstract}']}"):
                stack.enter_context(listening(path))
            (self.home / "config.yaml").write_text(json.dumps(self._config(base_url)))
            self._given(self.user, self.work)
            self.reset()
            stack.callback(self._daemon.close)
            self.start()
            yield self

    def start(self) -> None:
        """Start the daemon, or start it again."""
        self._daemon.close()
        self.chat.writer = None
        if PLACE == "systemd":
            unit = ["systemctl", "start", "hermes-agent"]
            subprocess.run(unit, check=True, timeout=WAIT_S)
            self._daemon.callback(subprocess.run, ["systemctl", "stop", "hermes-agent"], check=True)
        else:
            from worlds import HERMES, environment

            command, environ = [HERMES, "gateway", "run"], environment(self.home)
            self._daemon.enter_context(
                running(command, host="127.0.0.1", port=self.port, path="/health", environ=environ)
            )
        with self.chat.changed:
            assert self.chat.changed.wait_for(lambda: self.chat.writer is not None, WAIT_S)

    # -- the chat --------------------------------------------------------------------------------------------------

    def say(self, nick: str, text: str) -> int:
        """Let a user write into a chat of their own; return how many lines were received before."""
        self._count += 1
        before = len(self.chat.received)
        self.chat.say(f"{self._count} {nick} {nick} {text}")
        return before

    def hear(self, part: str, since: int = 0) -> str:
        """Return the first line with `part` that a chat received since then."""
        self.until(lambda: any(part in line for line in self.chat.received[since:]))
        return next(line for line in self.chat.received[since:] if part in line)


@contextlib.contextmanager
def listening(path: Path | str) -> Iterator[None]:
    """A Unix socket of a program outside."""
    with socket.socket(socket.AF_UNIX) as server:
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        server.bind(str(path))
        if isinstance(path, Path):
            path.chmod(0o777)
        server.listen(100)
        yield
        if isinstance(path, Path):
            path.unlink()


def own_address() -> str:
    """Return an address of this machine that is none of its loopback, or one of that where there is no other."""
    if given := os.environ.get("HERMES_ATTACK_ADDRESS"):
        return given
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.2"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
