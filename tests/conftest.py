"""What holds for every test."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
import logging
import os
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

import hypothesis
import pytest

from attack.table import ATTEMPTS

pytest_plugins = ["costs"]

# What was green yesterday is green today: `make test` draws the same examples each time, `make properties` new ones.
_CALM = {
    "deadline": None,  # a busy machine makes no test red
    "suppress_health_check": [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
}
hypothesis.settings.register_profile("same", derandomize=True, database=None, **_CALM)
hypothesis.settings.register_profile("new", print_blob=True, **_CALM)
hypothesis.settings.load_profile(os.environ.get("HERMES_EXAMPLES", "same"))

os.environ.setdefault("HERMES_BUNDLED_SKILLS", "none")  # tests of skills, lists and prompts have their own skills

IMPORT_HOOK, REDACT = "hermes_agent.compat.import_hook", "hermes_agent.core.redaction"
SERVICE_S = 600
"""Seconds for a test that boots a systemd."""
LOGGERS = (
    *("", "hermes_agent", "hermes_agent.plugins"),
    *("hermes_agent.app.plugins", "hermes_agent.app.manifest_cache"),
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collections: they would walk 16,000 tests again and again, here and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def attempt(request: pytest.FixtureRequest) -> Iterator[Callable[[bool, str], None]]:
    """Count one attempt of an attack, held off or not; the test fails at its end when one got through."""
    counted = request.node.stash.setdefault(ATTEMPTS, [])
    through: list[str] = []

    def count(held: bool, what: str) -> None:
        counted.append(held)
        if not held:
            through.append(what)

    yield count
    assert not through, f"{len(through)} of {len(counted)} attempts got through: {through[:20]}"


@pytest.fixture
def without_host() -> Iterator[None]:
    """The process has no host until the test builds one, which ends with the test."""
    from hermes_agent.host import use_host  # few tests build one

    with use_host(None):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in an event loop of its own; of a property test, each example."""
    inner = getattr(getattr(pyfuncitem.obj, "hypothesis", None), "inner_test", None)
    if inspect.iscoroutinefunction(inner):
        pyfuncitem.obj.hypothesis.inner_test = functools.wraps(inner)(lambda **drawn: asyncio.run(inner(**drawn)))
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the groups of `--dist loadgroup` count: pytest 9.2 does not read what pytest-xdist 3.8 writes them to.

    A test that boots a systemd has a limit of its own: it runs a hundred commands on a machine that may be busy.
    """
    for item in items:
        if item.get_closest_marker("service") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SERVICE_S))
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid and grouped.startswith(f"{item.nodeid}@"):
            item._id = grouped  # type: ignore[attr-defined]


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Names that this machine resolves, with an address for each question in turn."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def resolved(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in known:
            return real(host, port, *args, **kwargs)
        address = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return known


@pytest.fixture(autouse=True)
def log_handlers_stay_with_their_test() -> Iterator[None]:
    """A command that ran in this process leaves a handler on a stream that is closed when its test ends."""
    before = {name: (logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in LOGGERS}
    yield
    for name, (level, handlers) in before.items():
        log = logging.getLogger(name)
        for handler in [h for h in log.handlers if h not in handlers]:
            if type(handler) in (logging.StreamHandler, logging.NullHandler):
                log.removeHandler(handler)
                log.setLevel(level)


@pytest.fixture(autouse=True)
def environment_secrets_and_served_names_stay_with_their_test() -> Iterator[None]:
    """A host exports the variables of its home and learns its secrets, a command serves upstream's names."""
    environment, served = dict(os.environ), _serves_names()
    redactor = sys.modules[REDACT].redactor if REDACT in sys.modules else None
    secrets = None if redactor is None else redactor.snapshot()
    yield
    if redactor is not None:
        redactor.restore(secrets)
    if environment != os.environ:
        os.environ.clear()
        os.environ.update(environment)
    if _serves_names() and not served:
        sys.modules[IMPORT_HOOK].uninstall()


def _serves_names() -> bool:
    return IMPORT_HOOK in sys.modules and bool(sys.modules[IMPORT_HOOK].installed())


@pytest.fixture(autouse=True)
def context_variables_stay_with_their_test() -> Iterator[None]:
    """All tests of a process share the main thread's context: what one sets there would hold for the next ones."""
    before = contextvars.copy_context()
    yield
    for variable, value in contextvars.copy_context().items():
        if variable.name.startswith("hermes_") and value is not (old := _value(variable, before)):
            variable.set(old)


def _value(variable: contextvars.ContextVar[object], context: contextvars.Context) -> object:
    """Return what a variable says in a context, which may be its default."""
    return context.run(variable.get)
