"""Fetching of secrets from the secret sources of plugins, at the start and at each reload.

The enabled sources are asked at the same time. Mapped sources claim a variable before bulk sources, and the first claim
counts. A value stands below `.env`, the environment and systemd credentials, unless its source overrides them
(`override_existing`). A source that fails costs only its own secrets. Source: plugin contract §8.11.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hermes_agent.contracts.secret_source import (
    SECRET_SOURCE,
    FetchResult,
    SecretSource,
    is_valid_env_name,
    secret_sources_in_order,
)
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.credentials.lookup import Credentials, FetchedValue

logger = logging.getLogger(__name__)

MAX_FETCH_S = 45.0
"""Seconds that a source has at most, whatever its own limit: the unit's `TimeoutStartSec=` is 60 s."""

_RESERVED = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|PWD|IFS|ENV|BASH_ENV|TMPDIR|CREDENTIALS_DIRECTORY|NOTIFY_SOCKET|HERMES_HOME"
    "|LISTEN_.*|LD_.*|DYLD_.*|PYTHON.*"
)
"""Variables that decide how programs run; no source may set them."""


@lazy_dataclass(frozen=True, slots=True)
class SourceReport:
    """What became of one source.

    Attributes:
        applied: variables that got its value, sorted.
        skipped: reason by variable that did not.
        error: why the fetch failed, with the remedy of the source; "" if it succeeded.
    """

    name: str
    applied: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    error: str = ""


class SecretSources:
    """The secret sources of a host.

    Args:
        credentials: gets the values.
        registered: returns the registered sources by name.
        read_values: returns the values of the config.
        home: `$HERMES_HOME`, which a fetch gets.
        run_with_limit: calls a function with a limit in seconds; raises TimeoutError.
        learn_secrets: has the redactor mask what `credentials` has, as plugins declare it.
    """

    def __init__(
        self,
        credentials: Credentials,
        registered: Callable[[], Mapping[str, SecretSource]],
        read_values: Callable[[], Mapping[str, Any]],
        home: Path,
        run_with_limit: Callable[[Callable[[], Any], float], Any],
        learn_secrets: Callable[[], None],
    ) -> None:
        self._credentials = credentials
        self._registered = registered
        self._read_values = read_values
        self._home = home
        self._run_with_limit = run_with_limit
        self._learn_secrets = learn_secrets
        self._has_fetched = False
        self.reports: tuple[SourceReport, ...] = ()
        """Reports of the last fetch, in the order of the sources."""

    def fetch(self) -> None:
        """Fetch from the enabled sources, and give the values to credentials, environment and redactor.

        Called in a worker or before the core loop runs. When a source fails, its values of an earlier fetch stay, and
        `failures` returns the sentence for the user.
        """
        values = self._read_values()
        sources = secret_sources_in_order(self._registered(), values)
        self._has_fetched = True
        if not sources and not self.reports:
            return
        block = values.get("secrets")
        settings = {each.name: _block(block, each.name) for each in sources}
        fetched = self._ask(sources, settings)
        protected = frozenset().union(*(_protected(each, settings[each.name]) for each in sources))
        claims = _Claims(protected, self._credentials.get_own)
        self.reports = tuple(claims.settle(each) for each in fetched)
        kept = {each.source.name for each in fetched if not each.result.ok}
        self._credentials.set_fetched(claims.first, claims.last, keep_of=kept)
        self._credentials.export()
        self._learn_secrets()
        for report in self.reports:
            _log(report)

    def failures(self) -> list[str]:
        """Return a sentence for each source that failed at the last fetch."""
        return [
            f"secret source `{each.name}`: nothing was fetched: {each.error}" for each in self.reports if each.error
        ]

    def fetch_again(self) -> None:
        """Fetch at a reload of the config; a host that never fetched does not begin with it."""
        if self._has_fetched:
            self.fetch()
            for sentence in self.failures():
                logger.warning("%s", sentence)

    def _ask(self, sources: Sequence[SecretSource], settings: Mapping[str, dict[str, Any]]) -> list[_Fetched]:
        if not sources:
            return []
        from concurrent.futures import ThreadPoolExecutor  # few homes have a source

        with ThreadPoolExecutor(len(sources), "secret-source") as pool:
            return list(pool.map(lambda each: self._fetch_one(each, settings[each.name]), sources))

    def _fetch_one(self, source: SecretSource, cfg: dict[str, Any]) -> _Fetched:
        """Return the result of a source; each way to fail is a result with `error`."""
        try:
            limit = min(float(source.fetch_timeout_seconds(cfg)), MAX_FETCH_S)
            result = self._run_with_limit(partial(source.fetch, dict(cfg), self._home), limit)
            if not isinstance(result, FetchResult):
                result = FetchResult(error=f"fetch() returned {type(result).__name__} instead of FetchResult")
            overrides = bool(source.override_existing(cfg))
        except TimeoutError as exc:
            result, overrides = FetchResult(error=str(exc) or "no answer in time"), False
        except Exception as exc:  # noqa: BLE001 - plugin code: a failing source must not stop the start
            result, overrides = FetchResult(error=f"{type(exc).__name__}: {exc}"), False
        return _Fetched(source, cfg, result, overrides)


class _Fetched(LazyNamedTuple):
    source: SecretSource
    cfg: dict[str, Any]
    result: FetchResult
    overrides: bool


class _Claims:
    """The variables that sources claim; the first claim of a variable counts.

    Attributes:
        first: values above all other places.
        last: values below all other places.
    """

    def __init__(self, protected: frozenset[str], get_own: Callable[[str], str | None]) -> None:
        self._protected = protected
        self._get_own = get_own
        self._owners: dict[str, str] = {}
        self.first: dict[str, FetchedValue] = {}
        self.last: dict[str, FetchedValue] = {}

    def settle(self, fetched: _Fetched) -> SourceReport:
        """Apply the values of a source, and return its report."""
        source, result = fetched.source, fetched.result
        if not result.ok:
            return SourceReport(source.name, error=_explain(fetched))
        skipped, applied = {}, []
        for name, value in result.secrets.items():
            if reason := self._refusal(name, value, fetched.overrides):
                skipped[str(name)] = reason
                continue
            self._owners[name] = source.name
            (self.first if fetched.overrides else self.last)[name] = FetchedValue(value, source.name)
            applied.append(name)
        warnings = tuple(str(each) for each in result.warnings)
        return SourceReport(source.name, tuple(sorted(applied)), skipped, warnings)

    def _refusal(self, name: Any, value: Any, overrides: bool) -> str:
        if not is_valid_env_name(name) or not isinstance(value, str) or "\0" in value:
            return "no name and text of a variable"
        if not value:
            return "the value is empty"
        if _RESERVED.fullmatch(name):
            return "the variable decides how programs run"
        if name in self._protected:
            return "a source protects it"
        if name in self._owners:
            return f"source `{self._owners[name]}` has it"
        if not overrides and self._get_own(name):
            return "another place has a value"
        return ""


def _block(block: Any, name: str) -> dict[str, Any]:
    found = block.get(name) if isinstance(block, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def _protected(source: SecretSource, cfg: dict[str, Any]) -> frozenset[str]:
    try:
        named: Iterable[str] = source.protected_env_vars(cfg)
        token = source.token_env(cfg)
        return frozenset(named) | ({token} if token else frozenset())
    except Exception as exc:  # noqa: BLE001 - plugin code, as above
        logger.warning("secret source '%s': protected_env_vars() failed: %s: %s", source.name, type(exc).__name__, exc)
        return frozenset()


def _explain(fetched: _Fetched) -> str:
    """Return error and remedy of a failed fetch."""
    result = fetched.result
    kind = f" ({result.error_kind})" if result.error_kind else ""
    try:
        remedy = fetched.source.remediation(result.error_kind, fetched.cfg) or ""
    except Exception as exc:  # noqa: BLE001 - plugin code; the error itself matters more
        logger.warning("secret source '%s': remediation() failed: %s", fetched.source.name, type(exc).__name__)
        remedy = ""
    return f"{result.error}{kind}" + (f". {remedy}" if remedy else "")


def _log(report: SourceReport) -> None:
    """Log names and reasons of a source, never values; failures are for the caller."""
    if report.error:
        return
    logger.info("secret source '%s': %d secrets", report.name, len(report.applied))
    for warning in report.warnings:
        logger.warning("secret source '%s': %s", report.name, warning)
    for name, reason in report.skipped.items():
        logger.debug("secret source '%s': %s is left out: %s", report.name, name, reason)


class SecretSourceDeps(LazyNamedTuple):
    """The services that the feature needs."""

    credentials: Credentials
    providers: _ProviderRegistries
    values: Callable[[], Mapping[str, Any]]
    home: Path
    bridge: _Limiter
    learn_secrets: Callable[[], None]


class SecretSourceServices(LazyNamedTuple):
    """What the feature provides."""

    secret_sources: SecretSources


def register(ctx: _Reloads, deps: SecretSourceDeps) -> SecretSourceServices:
    """Make the sources of the host; `app.start` fetches after the plugins are loaded."""
    registry = deps.providers[SECRET_SOURCE.name]
    made = SecretSources(
        deps.credentials,
        lambda: dict(registry.items()),
        deps.values,
        deps.home,
        deps.bridge.run_with_limit,
        deps.learn_secrets,
    )
    ctx.on_reload(made.fetch_again)
    return SecretSourceServices(made)


class _ProviderRegistries(Protocol):
    def __getitem__(self, kind: str) -> Any: ...


class _Limiter(Protocol):
    def run_with_limit(self, call: Callable[[], Any], limit_s: float) -> Any: ...


class _Reloads(Protocol):
    def on_reload(self, apply: Callable[[], object]) -> None: ...
