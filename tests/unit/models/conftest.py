"""Real servers for the tests of the model client (tests/peers/README.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from peers import install
from peers.faulty import FaultyModel, faulty_model
from peers.scripted import ScriptedModel, scripted_model


def _skip(exc: install.NotInstalled) -> None:
    if os.environ.get("CI"):
        raise exc
    pytest.skip(f"a test server could not be installed: {exc}")


@pytest.fixture(scope="session")
def faulty() -> Iterator[FaultyModel]:
    """llmock; a test scripts the faults that it wants."""
    try:
        install.llmock()
    except install.NotInstalled as exc:
        _skip(exc)
    with faulty_model() as model:
        yield model


@pytest.fixture
def scripted() -> Callable[..., AbstractContextManager[ScriptedModel]]:
    """`scripted_model`, where aimock can be had."""
    try:
        install.aimock(), install.node()
    except install.NotInstalled as exc:
        _skip(exc)
    return scripted_model


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy or a key of the person who runs the tests does not take part."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("OPENAI_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
