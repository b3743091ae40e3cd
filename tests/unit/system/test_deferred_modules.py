"""Modules that run when one of their names is used."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hermes_agent.system.deferred_modules import defer, is_deferred
from peers.irc import certificate


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("late_one", "late_package", "late_package.part"):
        monkeypatch.setitem(sys.modules, name, sys)  # what the test adds is gone afterwards
        del sys.modules[name]
    return tmp_path


def test_a_module_runs_when_one_of_its_names_is_used_and_is_then_an_ordinary_one(folder: Path) -> None:
    (folder / "late_one.py").write_text("value = 7\n")
    defer("late_one")
    import late_one  # type: ignore[import-not-found]

    assert is_deferred("late_one") and "value" not in vars(late_one)
    assert late_one.value == 7 and sys.modules["late_one"] is late_one
    assert not is_deferred("late_one") and "__getattr__" not in vars(late_one)
    with pytest.raises(AttributeError, match="late_one"):
        _ = late_one.nothing


def test_a_known_name_is_given_without_the_module_until_that_ran(folder: Path) -> None:
    (folder / "late_one.py").write_text("known = 'real'\nother = 1\n")
    ran: list[str] = []
    defer("late_one", {"known": lambda: "stands in"}, lambda: ran.append("then"))
    import late_one

    assert late_one.known == "stands in" and is_deferred("late_one") and not ran
    assert late_one.other == 1 and ran == ["then"]
    assert late_one.known == "real"


def test_a_module_of_a_package_waits_without_an_import_of_the_package(folder: Path) -> None:
    (folder / "late_package").mkdir()
    (folder / "late_package" / "__init__.py").write_text("")
    (folder / "late_package" / "part.py").write_text("value = 8\n")
    defer("late_package.part")
    assert "late_package" not in sys.modules
    from late_package import part  # type: ignore[import-not-found]

    assert is_deferred("late_package.part")
    assert part.value == 8


def test_an_error_of_the_module_is_raised_at_each_use(folder: Path) -> None:
    (folder / "late_one.py").write_text("raise OSError('no such thing')\n")
    defer("late_one")
    import late_one

    for _ in range(2):
        with pytest.raises(OSError, match="no such thing"):
            _ = late_one.value


def test_a_second_thread_gets_the_whole_module(folder: Path) -> None:
    code = "import threading\nthreading.begun.set()\nthreading.go_on.wait(30)\nvalue = 9\n"
    (folder / "late_one.py").write_text(code)
    threading.begun, threading.go_on = threading.Event(), threading.Event()  # type: ignore[attr-defined]
    defer("late_one")
    import late_one

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(late_one.value)) for _ in range(2)]
    try:
        threads[0].start()
        assert threading.begun.wait(30)  # type: ignore[attr-defined]
        threads[1].start()
        threading.go_on.set()  # type: ignore[attr-defined]
        for thread in threads:
            thread.join(30)
    finally:
        del threading.begun, threading.go_on  # type: ignore[attr-defined]
    assert found == [9, 9]


TLS = """
import sys
from hermes_agent.system.deferred_modules import defer_tls, defer_unused, is_deferred
defer_unused()
defer_tls()
import asyncio, inspect, ssl, socket, uvicorn.config

async def answer(reader, writer):
    writer.write(await reader.readline())
    writer.close()

async def ask(port, **tls):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **tls)
    writer.write(b"hello\\n")
    said = await reader.read()
    writer.close()
    return said

async def main():
    listening = socket.create_server(("127.0.0.1", 0))
    async with await asyncio.start_server(answer, sock=listening) as plain:
        assert await ask(plain.sockets[0].getsockname()[1]) == b"hello\\n"
        assert is_deferred("ssl") and is_deferred("asyncio.sslproto") and "_ssl" not in sys.modules
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    trusting = ssl.create_default_context(cafile=sys.argv[1])
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as secure:
        assert await ask(secure.sockets[0].getsockname()[1], ssl=trusting) == b"hello\\n"
    left, right = socket.socketpair()
    wrapped = context.wrap_socket(left, server_side=True, do_handshake_on_connect=False)
    try:
        await asyncio.start_server(answer, sock=wrapped)
    except TypeError as exc:
        print(exc)
    wrapped.close()
    right.close()

asyncio.run(main())
assert uvicorn.config.SSL_PROTOCOL_VERSION == ssl.PROTOCOL_TLS_SERVER and ssl.CERT_NONE == 0
assert inspect.iscoroutinefunction(main) and not inspect.iscoroutinefunction(len)
"""


def test_tls_is_left_out_until_its_first_use_and_works_then(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TLS, certificate(tmp_path), str(tmp_path / "key.pem")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Socket cannot be of type SSLSocket"


INSPECT = """
import functools
from hermes_agent.system.deferred_modules import defer_unused, is_deferred
defer_unused()
import bz2, inspect, ipaddress, shutil
from inspect import iscoroutinefunction, signature

def plain(a, *, b): ...
async def waits(): ...
class Holder:
    async def waits(self): ...

assert [iscoroutinefunction(each) for each in (plain, waits, Holder().waits)] == [False, True, True]
assert is_deferred("inspect") and is_deferred("ipaddress") and is_deferred("bz2")
assert iscoroutinefunction(functools.partial(waits)) and not is_deferred("inspect")
assert str(signature(plain)) == "(a, *, b)" and inspect.signature is not signature
assert str(ipaddress.ip_address("::1")) == "::1" and bz2.decompress(bz2.compress(b"x")) == b"x"
assert {"bztar", "xztar"} <= {name for name, _ in shutil.get_archive_formats()}
"""


def test_what_is_left_out_of_each_process_works_when_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", INSPECT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
