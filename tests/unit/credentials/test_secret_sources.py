"""Which values of secret sources count, and what becomes of a source that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.secret_source import ErrorKind, FetchResult, SecretSource
from hermes_agent.core.redaction import redactor
from hermes_agent.credentials import Credentials
from hermes_agent.credentials.secret_sources import MAX_FETCH_S, SecretSources


class Vault(SecretSource):
    """Returns the `values` of its settings."""

    def __init__(self, name: str, shape: str = "mapped") -> None:
        self.name, self.shape = name, shape
        self.limits: list[float] = []

    def fetch(self, cfg: dict[str, Any], home_path: Path) -> FetchResult:
        if "fails" in cfg:
            return FetchResult.fail(str(cfg["fails"]), ErrorKind.AUTH_EXPIRED)
        return FetchResult(secrets=dict(cfg["values"]), warnings=list(cfg.get("warnings", ())))

    def remediation(self, kind: Any, cfg: dict[str, Any]) -> str:
        return "Sign in again" if kind == ErrorKind.AUTH_EXPIRED else ""


class SourcesBench:
    """Secret sources over a home with a `.env`, and an environment of its own."""

    def __init__(self, home: Path) -> None:
        (home / ".env").write_text("IN_FILE=of-the-file\n")
        (home / ".env").chmod(0o600)
        self.environ: dict[str, str] = {"IN_ENVIRONMENT": "of-the-environment"}
        self.credentials = Credentials(home, self.environ)
        self.sources: dict[str, SecretSource] = {}
        self.values: dict[str, Any] = {}
        self.limits: list[float] = []
        self.fetcher = SecretSources(
            self.credentials,
            lambda: self.sources,
            lambda: {"secrets": self.values},
            home,
            self._limited,
            lambda: redactor.learn(self.credentials.secrets({"PLACE": False})),
        )

    def _limited(self, call: Callable[[], Any], limit_s: float) -> Any:
        self.limits.append(limit_s)
        return call()

    def add(self, source: SecretSource, values: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self.sources[source.name] = source
        self.values[source.name] = {"enabled": True, "values": values or {}, **settings}

    def fetch(self) -> dict[str, str]:
        """Fetch, and return errors and reasons by name of source or variable."""
        self.fetcher.fetch()
        found: dict[str, str] = {}
        for report in self.fetcher.reports:
            found |= {report.name: report.error} if report.error else {}
            found |= report.skipped
        return found


@pytest.fixture
def bench(tmp_path: Path) -> SourcesBench:
    return SourcesBench(tmp_path)


def test_a_value_is_found_exported_and_masked(bench: SourcesBench) -> None:
    bench.add(Vault("box"), {"SERVICE_PASSWORD": "tulips-in-the-spring"})

    assert bench.fetch() == {}

    assert bench.credentials.get("SERVICE_PASSWORD") == "tulips-in-the-spring"
    assert bench.environ["SERVICE_PASSWORD"] == "tulips-in-the-spring"
    assert "tulips" not in redactor("password: tulips-in-the-spring")


def test_a_value_that_a_plugin_declares_harmless_is_not_masked(bench: SourcesBench) -> None:
    bench.add(Vault("box"), {"PLACE": "under-the-old-bridge"})

    bench.fetch()

    assert redactor("It lies under-the-old-bridge.") == "It lies under-the-old-bridge."


def test_it_stands_below_file_and_environment_unless_the_source_overrides(bench: SourcesBench) -> None:
    values = {"IN_FILE": "of-the-box", "IN_ENVIRONMENT": "of-the-box"}
    bench.add(Vault("box"), values)
    assert bench.fetch() == {"IN_FILE": "another place has a value", "IN_ENVIRONMENT": "another place has a value"}
    assert bench.credentials.get("IN_FILE") == "of-the-file"

    bench.add(Vault("box"), values, override_existing=True)

    assert bench.fetch() == {}
    assert [bench.credentials.get(name) for name in values] == ["of-the-box"] * 2
    assert bench.environ["IN_ENVIRONMENT"] == "of-the-box"


def test_mapped_sources_claim_first_and_the_first_claim_counts(bench: SourcesBench) -> None:
    bench.add(Vault("all", "bulk"), {"A_KEY": "of-all", "B_KEY": "of-all"})
    bench.add(Vault("second"), {"A_KEY": "of-second"})
    bench.add(Vault("first"), {"A_KEY": "of-first"})
    bench.values["sources"] = ["first", "second"]

    assert bench.fetch() == {"A_KEY": "source `first` has it"}
    assert [bench.credentials.get(name) for name in ("A_KEY", "B_KEY")] == ["of-first", "of-all"]
    assert [report.applied for report in bench.fetcher.reports] == [("A_KEY",), (), ("B_KEY",)]


def test_what_no_source_may_set_is_left_out_with_a_reason(bench: SourcesBench) -> None:
    class Careful(Vault):
        def protected_env_vars(self, cfg: dict[str, Any]) -> frozenset[str]:
            return frozenset({"OWN_NAME"})

    class Careless(Vault):
        def protected_env_vars(self, cfg: dict[str, Any]) -> frozenset[str]:
            raise RuntimeError("no names today")

    bench.add(Careful("careful"), {"A_KEY": "a"}, token_env="VAULT_TOKEN")
    names = ("LD_PRELOAD", "PATH", "PYTHONPATH", "OWN_NAME", "VAULT_TOKEN")
    bench.add(Careless("careless"), {**dict.fromkeys(names, "x"), "1A": "x", "EMPTY": "", "NUMBER": 7})

    found = bench.fetch()

    assert {found[name] for name in names[:3]} == {"the variable decides how programs run"}
    assert {found[name] for name in names[3:]} == {"a source protects it"}
    assert {found["1A"], found["NUMBER"]} == {"no name and text of a variable"}
    assert found["EMPTY"] == "the value is empty"
    assert all(bench.credentials.get(name) is None for name in (*names, "1A", "EMPTY", "NUMBER"))


def test_a_source_that_fails_costs_its_own_values_alone(bench: SourcesBench, caplog: pytest.LogCaptureFixture) -> None:
    class Raising(Vault):
        def fetch(self, cfg: dict[str, Any], home_path: Path) -> FetchResult:
            raise KeyError("door")

    class Strange(Vault):
        def fetch(self, cfg: dict[str, Any], home_path: Path) -> FetchResult:
            return {"A_KEY": "x"}  # type: ignore[return-value]

    bench.add(Raising("raising"))
    bench.add(Strange("strange"))
    bench.add(Vault("expired"), fails="the ticket is old")
    bench.add(Vault("fine"), {"B_KEY": "b-of-fine"})

    assert bench.fetch() == {
        "raising": "KeyError: 'door'",
        "strange": "fetch() returned dict instead of FetchResult",
        "expired": "the ticket is old (auth_expired). Sign in again",
    }
    assert bench.credentials.get("B_KEY") == "b-of-fine"
    assert (
        bench.fetcher.failures()[-1]
        == "secret source `expired`: nothing was fetched: the ticket is old (auth_expired). Sign in again"
    )
    assert "b-of-fine" not in caplog.text


def test_each_source_has_its_own_limit_of_at_most_the_one_of_a_start(bench: SourcesBench) -> None:
    class Quick(Vault):
        def fetch_timeout_seconds(self, cfg: dict[str, Any]) -> float:
            return 2.0

    bench.add(Quick("quick"))
    bench.add(Vault("patient"))

    bench.fetch()

    assert sorted(bench.limits) == [2.0, MAX_FETCH_S]


def test_sources_are_asked_at_the_same_time(bench: SourcesBench) -> None:
    meet = threading.Barrier(3, timeout=30)

    class Meeting(Vault):
        def fetch(self, cfg: dict[str, Any], home_path: Path) -> FetchResult:
            meet.wait()  # raises unless all three are here
            return FetchResult()

    for name in ("one", "two", "three"):
        bench.add(Meeting(name))

    assert bench.fetch() == {}


def test_a_reload_takes_rotated_values_and_keeps_those_of_a_source_that_fails(bench: SourcesBench) -> None:
    bench.fetcher.fetch_again()
    assert bench.fetcher.reports == ()
    bench.add(Vault("box"), {"A_KEY": "old-value", "GONE": "old-value"})
    bench.add(Vault("other"), {"B_KEY": "old-value"})
    bench.fetch()

    bench.add(Vault("box"), {"A_KEY": "new-value"})
    bench.add(Vault("other"), fails="no network")
    bench.fetcher.fetch_again()

    assert [bench.credentials.get(name) for name in ("A_KEY", "GONE", "B_KEY")] == ["new-value", None, "old-value"]
    assert bench.environ["A_KEY"] == "new-value"
    bench.values.clear()
    bench.fetcher.fetch_again()
    assert [bench.credentials.get(name) for name in ("A_KEY", "B_KEY")] == [None, None]
    assert bench.environ == {"IN_ENVIRONMENT": "of-the-environment", "IN_FILE": "of-the-file"}
