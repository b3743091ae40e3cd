"""Secret sources (docs/plugins/kinds/secret_source.md): the suite, and in which order they are asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.secret_source import (
    ErrorKind,
    FetchResult,
    SecretSource,
    check_secret_source,
    is_valid_env_name,
    secret_sources_in_order,
)
from hermes_agent.host import Host


class InMemory(SecretSource):
    """Gives what its settings list, if there is a file `secrets.txt`."""

    name = "memory"

    def fetch(self, cfg: dict[str, Any], home_path: Path) -> FetchResult:
        if not (home_path / "secrets.txt").is_file():
            return FetchResult(error="no file", error_kind=ErrorKind.NOT_CONFIGURED)
        return FetchResult(secrets={"A_KEY": "one"})


@pytest.fixture(params=["in memory", "example plugin"])
def source(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> SecretSource:
    """Every implementation."""
    made = InMemory() if request.param == "in memory" else example("secret_source")
    assert check_secret_source(made) == ""
    return made


def test_a_fetch_brings_text_by_name_of_variable(source: SecretSource, tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("A_KEY=one\n2B=x\n")

    result = source.fetch({"enabled": True}, tmp_path)

    assert (result.ok, result.error_kind, result.secrets["A_KEY"]) == (True, None, "one")
    assert all(is_valid_env_name(n) and isinstance(v, str) for n, v in result.secrets.items())


def test_a_fetch_that_fails_says_why_and_does_not_raise(source: SecretSource, tmp_path: Path) -> None:
    result = source.fetch({}, tmp_path)

    assert (result.ok, result.secrets) == (False, {})
    assert result.error
    assert isinstance(result.error_kind, ErrorKind)


def test_what_it_does_is_asked_of_its_settings(source: SecretSource) -> None:
    assert [source.is_enabled(cfg) for cfg in ({"enabled": True}, {"enabled": False}, {})] == [True, False, False]
    assert source.override_existing({}) in (True, False)
    assert isinstance(source.protected_env_vars({}), frozenset)
    assert source.fetch_timeout_seconds({}) == 120
    assert all({"description", "default"} <= set(entry) for entry in source.config_schema().values())


def test_the_defaults_are_the_contract_s() -> None:
    assert (SecretSource.api_version, InMemory().shape, InMemory().override_existing({"override_existing": True})) == (
        1,
        "mapped",
        True,
    )
    assert FetchResult() == FetchResult({}, [], [], [], None, None, None)
    assert {kind.value for kind in ErrorKind} == {
        "not_configured",
        "binary_missing",
        "auth_failed",
        "auth_expired",
        "ref_invalid",
        "network",
        "empty_value",
        "timeout",
        "internal",
    }
    assert [is_valid_env_name(n) for n in ("A_1", "_", "1A", "A-B", "", "A\n", None)] == [True, True] + [False] * 5


def make(name: str, shape: str = "mapped", **more: Any) -> SecretSource:
    return type("Made", (InMemory,), {"name": name, "shape": shape, **more})()


def test_another_version_or_shape_is_refused() -> None:
    assert check_secret_source(make("x", api_version=2)) == "has api_version 2, this release supports 1"
    assert check_secret_source(make("x", "round")) == "has shape 'round': expected one of mapped, bulk"


def test_mapped_ones_come_before_bulk_ones_then_the_config_orders() -> None:
    made = [make("b", "bulk"), make("m"), make("n"), make("off"), make("bad", is_enabled=lambda self, cfg: 1 / 0)]
    sources = {s.name: s for s in made}
    values = {"secrets": {"sources": ["b", "n", "gone"], **{n: {"enabled": True} for n in "bmn"}, "off": {}}}

    assert [s.name for s in secret_sources_in_order(sources, values)] == ["n", "m", "b"]
    assert secret_sources_in_order(sources, {}) == []


def test_the_host_lists_it_and_selects_nobody(start: Callable[..., Host], served: None) -> None:
    host = start("secret_source")
    from agent.secret_sources import base

    assert host.providers["secret_source"].names() == ["example-file"]
    assert host.providers.choose("secret_source", host.config.values) == (None, "all of them are used")
    assert (base.SecretSource, base.FetchResult, base.ErrorKind) == (SecretSource, FetchResult, ErrorKind)
    with pytest.raises(ModuleNotFoundError, match="it belongs to one vendor's service"):
        __import__("agent.secret_sources.bitwarden")
