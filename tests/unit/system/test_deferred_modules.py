"""Modules that run when one of their names is used."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hermes_agent.system.deferred_modules import defer, is_deferred


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
    defer("late_one", {"known": lambda: "stands in"})
    import late_one

    assert late_one.known == "stands in" and is_deferred("late_one")
    assert late_one.other == 1
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


UNUSED = """
from hermes_agent.system.deferred_modules import defer_unused, is_deferred
defer_unused()
import bz2, ipaddress, shutil
assert is_deferred("ipaddress") and is_deferred("bz2") and is_deferred("lzma") and is_deferred("locale")
assert str(ipaddress.ip_address("::1")) == "::1" and bz2.decompress(bz2.compress(b"x")) == b"x"
assert {"bztar", "xztar"} <= {name for name, _ in shutil.get_archive_formats()}
"""


def test_what_is_left_out_of_each_process_works_when_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
