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
    for name in ("late_one", "late_two", "late_package", "late_package.part"):
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
    defer("late_one", {"known": lambda: "stands in"})
    import late_one

    assert late_one.known == "stands in" and is_deferred("late_one")
    assert late_one.other == 1
    assert late_one.known == "real"


def test_a_name_is_lent_to_the_module_that_does_not_use_it_and_to_no_other(folder: Path) -> None:
    (folder / "late_one.py").write_text("taken = 'real'\n")
    (folder / "late_two.py").write_text("from late_one import taken\n")
    defer("late_one", lent={("late_two", "taken"): "lent"})
    import late_one
    import late_two  # type: ignore[import-not-found]

    assert late_two.taken == "lent" and is_deferred("late_one")
    assert late_one.taken == "real" and not is_deferred("late_one")


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


UNUSED = """
from hermes_agent.system.deferred_modules import defer_unused, is_deferred
defer_unused()
import bz2, ipaddress, shutil
import inspect
assert all(map(is_deferred, ("ast", "ipaddress", "bz2", "lzma", "locale", "tokenize")))
assert inspect.getsource(defer_unused).startswith("def defer_unused") and not is_deferred("tokenize")
from email.message import EmailMessage
assert is_deferred("ast")
assert inspect.getsource(EmailMessage).startswith("class EmailMessage(")  # needs `ast` before Python 3.13
import ast
assert ast.literal_eval("[1]") == [1] and isinstance(ast.parse("x"), ast.AST) and not is_deferred("ast")
assert str(ipaddress.ip_address("::1")) == "::1" and bz2.decompress(bz2.compress(b"x")) == b"x"
assert {"bztar", "xztar"} <= {name for name, _ in shutil.get_archive_formats()}
"""


def test_what_is_left_out_of_each_process_works_when_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


TLS = """
import sys
from hermes_agent.system.deferred_modules import defer, defer_tls, defer_unused, is_deferred
defer_unused()
defer_tls()
defer("uvicorn")  # imports its command line
import asyncio, socket, ssl, uvicorn.config

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
    assert trusting.verify_mode is ssl.CERT_REQUIRED
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as secure:
        port = secure.sockets[0].getsockname()[1]
        assert await ask(port, ssl=trusting) == b"hello\\n"
        try:
            await ask(port, ssl=True)
        except ssl.SSLCertVerificationError:
            print("not trusted")
    left, right = socket.socketpair()
    wrapped = context.wrap_socket(left, server_side=True, do_handshake_on_connect=False)
    try:
        await asyncio.start_server(answer, sock=wrapped)
    except TypeError as exc:
        print(exc)
    wrapped.close()
    right.close()

asyncio.run(main())
assert isinstance(ssl.CERT_NONE, ssl.VerifyMode) and asyncio.sslproto.SSLProtocol
assert uvicorn.config.SSL_PROTOCOL_VERSION == ssl.PROTOCOL_TLS_SERVER
"""


def test_tls_is_left_out_until_its_first_use_and_works_then(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TLS, certificate(tmp_path), str(tmp_path / "key.pem")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["not trusted", "Socket cannot be of type SSLSocket"]


NAMES = """
import hermes_agent.server.http_server as server
server._skip_unused()
from hermes_agent.system.deferred_modules import is_deferred
import uvicorn.config, uvicorn.server
assert is_deferred("configparser") and is_deferred("email.utils") and is_deferred("uvicorn._types")
import os, platform
assert is_deferred("platform") and platform.system() == os.uname().sysname and is_deferred("platform")
assert platform.machine() == os.uname().machine and platform.system() == os.uname().sysname
assert uvicorn.server.formatdate(0, usegmt=True) == "Thu, 01 Jan 1970 00:00:00 GMT"
from configparser import RawConfigParser
assert RawConfigParser.__module__ == "configparser" and not is_deferred("configparser")
"""


def test_what_the_server_takes_and_does_not_use_is_left_out_and_works() -> None:
    done = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
