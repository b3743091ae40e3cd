"""Upstream's import names, for the tests of this folder that ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hermes_agent.compat import import_hook


@pytest.fixture
def served_names() -> Iterator[None]:
    """Serve upstream's names in this process, and afterwards only if they were served before."""
    was = import_hook.installed()
    import_hook.install()
    yield
    if not was:
        import_hook.uninstall()
