"""Taps over https: a real git server with a certificate of an authority of its own, behind a proxy for the names."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hermes_agent.app.main import main
from hermes_agent.app.plugins.catalog import fetch_text

GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@tap.example", "-c", "init.defaultBranch=main")
TEXT = "---\nname: tea\ndescription: Use when tea is asked\n---\nWarm the pot.\n"
SET_HERE = ("no_proxy", "https_proxy", "all_proxy", "git_ssl_cainfo")
SIGN_IN = b64encode(b"ada:tea-of-ada").decode()
Cli = Callable[..., tuple[int, str]]


def make_certificates(folder: Path, *names: str) -> tuple[Path, Path]:
    """Write the certificate of a new authority, and a key with a certificate for the names; return both files."""
    now = datetime.datetime.now(datetime.UTC)

    def make(name: str, key: Any, issuer: str, signer: Any, extension: Any) -> Any:
        made = x509.CertificateBuilder().serial_number(x509.random_serial_number()).public_key(key.public_key())
        made = made.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        made = made.issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        made = made.not_valid_before(now - datetime.timedelta(days=1))
        made = made.not_valid_after(now + datetime.timedelta(days=1)).add_extension(extension, critical=True)
        return made.sign(signer, hashes.SHA256())

    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = make("tap test", authority, "tap test", authority, x509.BasicConstraints(ca=True, path_length=0))
    leaf = make(names[0], own, "tap test", authority, x509.SubjectAlternativeName([x509.DNSName(n) for n in names]))
    pem = serialization.Encoding.PEM
    key = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    folder.mkdir(exist_ok=True)
    (folder / "authority.pem").write_bytes(root.public_bytes(pem))
    (folder / "server.pem").write_bytes(key + leaf.public_bytes(pem))
    return folder / "authority.pem", folder / "server.pem"


class GitServer(ThreadingHTTPServer):
    """`git http-backend` below a folder, over TLS; some paths ask for a sign-in, redirect, or never answer."""

    daemon_threads = True

    def __init__(self, root: Path, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _GitHandler)
        self.root, self.asked, self.texts = root, list[str](), dict[str, str]()
        self.waits, self.ends = threading.Event(), threading.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.context = context

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), self.context.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)


class _GitHandler(BaseHTTPRequestHandler):
    server: GitServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host = self.headers["Host"]
        self.server.asked.append(f"{host}{self.path.partition('?')[0]}")
        path, _, query = self.path.partition("?")
        if path in self.server.texts:
            return self._say(200, self.server.texts[path].encode())
        if path.startswith("/moved/"):
            return self._say(301, Location=f"https://{host}/{self.path.removeprefix('/moved/')}")
        if path.startswith("/down/"):
            return self._say(301, Location=f"http://{host}/{self.path.removeprefix('/down/')}")
        if path.startswith("/slow/"):
            self.server.waits.set()
            self.server.ends.wait(60)
            return self._say(500)
        if path.startswith("/private/"):
            path = path.removeprefix("/private")
            if self.headers.get("Authorization") != f"Basic {SIGN_IN}":
                return self._say(401, WWW_Authenticate='Basic realm="tap"')
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        config = ("-c", "safe.directory=*")
        done = subprocess.run(["git", *config, "http-backend"], input=body, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        return self._say(int(fields.pop("Status", "200").split()[0]), content, **fields)

    do_POST = do_GET

    def _say(self, status: int, content: bytes = b"", **fields: str) -> None:
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None: ...


class NameProxy(ThreadingHTTPServer):
    """An http proxy that leads each name to one port of this machine, so that no name is looked up."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.port, self.asked = port, list[str]()


class _ProxyHandler(BaseHTTPRequestHandler):
    server: NameProxy

    def do_CONNECT(self) -> None:
        self.server.asked.append(self.path)
        with socket.create_connection(("127.0.0.1", self.server.port)) as out:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=self._copy, args=(out, self.connection))
            back.start()
            self._copy(self.connection, out)
            back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def log_message(self, *args: Any) -> None: ...


@contextlib.contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TapBench:
    """A home, and a server with the tap `ada/skills`."""

    def __init__(self, folder: Path, server: GitServer, proxy: NameProxy, authority: Path) -> None:
        self.folder, self.home, self.server, self.proxy, self.authority = (
            folder,
            folder / "home",
            server,
            proxy,
            authority,
        )

    def add_skill(self, name: str = "tea") -> None:
        work = self.folder / "work"
        (work / "skills" / name).mkdir(parents=True)
        (work / "skills" / name / "SKILL.md").write_text(TEXT.replace("tea", name))
        for command in (["add", "."], ["commit", "-qm", name], ["push", "-q", "origin", "HEAD:main"]):
            subprocess.run([*GIT, *command], cwd=work, check=True, capture_output=True)

    @property
    def taps(self) -> list[Any]:
        file = self.home / "skills" / ".hub" / "taps.json"
        return list(json.loads(file.read_text())["taps"]) if file.exists() else []


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TapBench]:
    if shutil.which("git") is None or subprocess.run(["git", "http-backend"], capture_output=True).returncode == 1:
        pytest.skip("git has no http-backend here")
    repository = tmp_path / "served" / "ada" / "skills.git"
    subprocess.run([*GIT, "init", "-q", "--bare", repository], check=True)
    subprocess.run([*GIT, "clone", "-q", repository, tmp_path / "work"], check=True, capture_output=True)
    authority, certificate = make_certificates(tmp_path / "tls", "tap.example", "github.com")
    server = GitServer(tmp_path / "served", certificate)
    proxy = NameProxy(server.server_port)
    made = TapBench(tmp_path, server, proxy, authority)
    made.home.mkdir()
    made.add_skill()
    clear = {name: value for name, value in os.environ.items() if name.lower() not in SET_HERE}
    own = {"HERMES_HOME": str(made.home), "HOME": str(tmp_path), "SSL_CERT_FILE": str(authority)}
    own |= {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.server_port}"}
    monkeypatch.setattr(os, "environ", {**clear, **own})
    with serving(server), serving(proxy):
        yield made
        server.ends.set()


@pytest.fixture
def cli(world: TapBench, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*argv: str) -> tuple[int, str]:
        status = main(["skills", *argv])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def test_a_tap_is_fetched_over_https_and_searched_without_a_network(world: TapBench, cli: Cli) -> None:
    status, said = cli("tap", "add", "https://tap.example/ada/skills.git")
    assert status == 0 and "Added https://tap.example/ada/skills.git (community): 1 skills." in said
    asked = len(world.server.asked)
    assert "/tea" in cli("search", "tea")[1] and "Installed" in cli("install", "tea")[1]
    assert len(world.server.asked) == asked, "the index and the copy are enough"
    assert (world.home / "skills" / "tea" / "SKILL.md").read_text() == TEXT
    world.add_skill("coffee")
    assert "Nothing found" in cli("search", "coffee")[1]
    assert "coffee" in cli("search", "coffee", "--refresh")[1]


def test_owner_and_repo_are_a_repository_of_github(world: TapBench, cli: Cli) -> None:
    assert cli("tap", "add", "ada/skills")[0] == 0
    assert world.proxy.asked[0] == "github.com:443"
    assert set(world.server.asked) >= {
        "github.com/ada/skills.git/info/refs",
        "github.com/ada/skills.git/git-upload-pack",
    }
    assert "Installed ada/skills/tea: /tea" in cli("install", "ada/skills/tea")[1]


def test_a_moved_tap_is_followed_but_not_to_http(world: TapBench, cli: Cli) -> None:
    status, said = cli("tap", "add", "https://tap.example/moved/ada/skills.git")
    assert status == 0, said
    assert "tap.example/ada/skills.git/info/refs" in world.server.asked
    status, said = cli("tap", "add", "https://tap.example/down/ada/skills.git")
    assert status == 1 and "https://tap.example/down/ada/skills.git cannot be fetched" in said
    assert [tap["repo"] for tap in world.taps] == ["https://tap.example/moved/ada/skills.git"]


def test_a_private_tap_needs_a_key_which_no_address_has(world: TapBench, cli: Cli) -> None:
    status, said = cli("tap", "add", "https://tap.example/private/ada/skills.git")
    assert status == 1 and "cannot be fetched" in said and "It is not there, or it is private" in said
    status, said = cli("tap", "add", "https://ada:tea-of-ada@tap.example/private/ada/skills.git")
    assert status == 1 and said.startswith("hermes: the address of a tap has no password") and "tea-of-ada" not in said
    assert world.taps == []


def test_a_certificate_that_is_not_trusted_is_named_with_the_way_to_trust_it(
    world: TapBench, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other, _ = make_certificates(tmp_path / "other", "other.example")
    for trusted, address in ((other, "tap.example"), (world.authority, "wrong.example")):
        monkeypatch.setitem(os.environ, "SSL_CERT_FILE", str(trusted))
        status, said = cli("tap", "add", f"https://{address}/ada/skills.git")
        assert status == 1 and "certificate" in said and "`SSL_CERT_FILE`" in said
    assert world.taps == [] and world.server.asked == []


def test_a_server_that_cannot_be_reached_leaves_the_index_as_it_was(
    world: TapBench, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("tap", "add", "https://tap.example/ada/skills.git")[0] == 0
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setitem(os.environ, "HTTPS_PROXY", f"http://127.0.0.1:{closed.getsockname()[1]}")
        status, said = cli("search", "tea", "--refresh")
        assert status == 1 and "cannot be fetched" in said and "its index stays as it was" in said and "/tea" in said
        status, said = cli("tap", "add", "https://tap.example/ada/other.git")
        assert status == 1 and "is there a network?" in said
    assert len(world.taps) == 1
    assert "Installed" in cli("install", "tea")[1]


def test_an_interrupted_fetch_ends_git_and_adds_nothing(world: TapBench) -> None:
    argv = [sys.executable, "-m", "hermes_agent", "skills", "tap", "add", "https://tap.example/slow/ada/skills.git"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ))
    assert world.server.waits.wait(60)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in said
    assert world.taps == []
    (copy,) = (world.home / "skills" / ".hub" / "taps").iterdir()
    assert not list(copy.glob("**/*.lock"))


def test_a_plugin_catalogue_comes_through_the_proxy_and_the_same_authority(world: TapBench) -> None:
    world.server.texts["/catalog.json"] = '{"entries": []}'
    assert fetch_text("https://tap.example/catalog.json", 1000, 30.0) == '{"entries": []}'
    assert world.proxy.asked == ["tap.example:443"], "the name is looked up by the proxy"


def test_certificates_that_cannot_be_read_are_named(world: TapBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SSL_CERT_FILE", str(world.folder / "absent.pem"))
    with pytest.raises(OSError, match="certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read"):
        fetch_text("https://tap.example/catalog.json", 1000, 30.0)
