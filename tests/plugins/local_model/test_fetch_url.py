"""Downloads against a real HTTP server that behaves well, badly, or not at all."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from local_model import TRIES, DownloadProgress, SourceFailed, append_from_url, public_url

DATA = bytes(range(256)) * 4000


@dataclass
class Shop:
    """How the server behaves, and what it was asked."""

    data: bytes = DATA
    ranges: bool = True
    status: int = 0
    """Answer this instead of the file."""
    cuts: list[int] = field(default_factory=list)
    """Bytes after which the next connections break."""
    wrong_range: bool = False
    redirect: bool = False
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def serving(shop: Shop) -> Iterator[Shop]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            return None

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            shop.asked.append(wanted)
            if shop.redirect and self.path != "/moved":
                self.send_response(302)
                self.send_header("Location", "/moved")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if shop.status:
                self.send_error(shop.status)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and shop.ranges else 0
            if start >= len(shop.data):
                self.send_error(416)
                return
            body = shop.data[start:]
            self.send_response(206 if start else 200)
            if start:
                shown = start + 1 if shop.wrong_range else start
                self.send_header("Content-Range", f"bytes {shown}-{len(shop.data) - 1}/{len(shop.data)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut = shop.cuts.pop(0) if shop.cuts else None
            self.wfile.write(body[:cut])
            if cut is not None:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        shop.url = f"http://127.0.0.1:{server.server_port}/weights.gguf"
        try:
            yield shop
        finally:
            server.shutdown()
            thread.join()


def fetch(shop: Shop, part: Path, size: int = len(DATA)) -> tuple[str, list[float]]:
    """Return what was said and how long was waited."""
    said, pauses = io.StringIO(), []
    append_from_url(shop.url, part, size, DownloadProgress("x", size, said), pause=pauses.append)
    return said.getvalue(), pauses


def test_a_file_is_fetched_whole(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    with serving(Shop()) as shop:
        said, pauses = fetch(shop, part)
    assert part.read_bytes() == DATA
    assert shop.asked == [""]
    assert pauses == []
    assert "x: 100 % (1.0 MB of 1.0 MB)" in said


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    part.write_bytes(DATA[:1000])
    with serving(Shop()) as shop:
        fetch(shop, part)
    assert part.read_bytes() == DATA
    assert shop.asked == ["bytes=1000-"]


def test_a_server_without_ranges_is_read_from_the_beginning(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    part.write_bytes(b"?" * 1000)
    with serving(Shop(ranges=False)) as shop:
        said, _ = fetch(shop, part)
    assert part.read_bytes() == DATA
    assert "starts from the beginning" in said


def test_cut_connections_are_taken_up_where_they_ended(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    with serving(Shop(cuts=[300_000, 200_000])) as shop:
        _, pauses = fetch(shop, part)
    assert part.read_bytes() == DATA
    assert shop.asked == ["", "bytes=300000-", "bytes=500000-"]
    assert len(pauses) == 2


def test_connections_that_bring_nothing_are_given_up_and_what_was_got_stays(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    with (
        serving(Shop(cuts=[1000] + [0] * TRIES)) as shop,
        pytest.raises(SourceFailed, match=rf"broke off {TRIES} times at 1.0 kB"),
    ):
        fetch(shop, part)
    assert part.read_bytes() == DATA[:1000]


def test_a_server_that_is_overloaded_is_asked_again(tmp_path: Path) -> None:
    with serving(Shop(status=503)) as shop, pytest.raises(SourceFailed, match="503"):
        fetch(shop, tmp_path / "w.part")
    assert len(shop.asked) == TRIES


def test_a_missing_file_ends_it_at_once(tmp_path: Path) -> None:
    with serving(Shop(status=404)) as shop, pytest.raises(SourceFailed, match="answers 404 Not Found"):
        fetch(shop, tmp_path / "w.part")
    assert len(shop.asked) == 1


def test_a_file_of_another_length_is_refused_before_it_is_read(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    with serving(Shop()) as shop, pytest.raises(SourceFailed, match="it is another file"):
        fetch(shop, part, size=len(DATA) + 1)
    assert not part.exists()


def test_a_shorter_file_than_what_is_there_is_refused(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    part.write_bytes(b"x" * 2000)
    with serving(Shop(data=DATA[:1000])) as shop, pytest.raises(SourceFailed, match="less than the expected"):
        fetch(shop, part)


def test_an_answer_with_another_range_is_refused(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    part.write_bytes(DATA[:1000])
    with serving(Shop(wrong_range=True)) as shop, pytest.raises(SourceFailed, match="another range"):
        fetch(shop, part)
    assert part.read_bytes() == DATA[:1000]


def test_a_redirect_is_followed(tmp_path: Path) -> None:
    part = tmp_path / "w.part"
    with serving(Shop(redirect=True)) as shop:
        fetch(shop, part)
    assert part.read_bytes() == DATA


def test_a_host_that_is_not_reachable_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/w"
        with pytest.raises(SourceFailed, match=f"{url} cannot be reached"):
            fetch(Shop(url=url), tmp_path / "w.part")


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceFailed, match="ftp://"):
        fetch(Shop(url="ftp://example.org/w"), tmp_path / "w.part")


def test_user_password_and_query_of_an_address_are_not_shown() -> None:
    assert public_url("https://me:secret@host:8443/a/b.gguf?token=secret#x") == "https://host:8443/a/b.gguf"
