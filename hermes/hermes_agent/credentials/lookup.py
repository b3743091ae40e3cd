"""Look-up of a secret by name in all places where the operator may put it.

The first place that has the name counts:

1. the file `NAME` in `$CREDENTIALS_DIRECTORY` (systemd's `LoadCredential=`, `SetCredential=`)
2. the files `env-*` there: lines `NAME=value`
3. the environment of the process
4. `$HERMES_HOME/.env`
5. what secret sources returned (`secret_sources`); a source that overrides comes before all other places

A name with an empty value counts as missing. Files are read again when they change, so a rotated key is effective
without a restart.
"""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from pathlib import Path

from hermes_agent.config.dotenv import read_env_file
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.secrecy import find_secrets, is_public_value, name_kind
from hermes_agent.system.files import FileStamp

logger = logging.getLogger(__name__)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_State = FileStamp | None


class FetchedValue(LazyNamedTuple):
    """A value of a secret source."""

    value: str
    source: str
    """Name of the source."""


class Credentials:
    """The secrets of one home. Safe for threads: it stores only the content of the files.

    Args:
        home: `$HERMES_HOME`; its `.env` is the last place.
        environ: the environment of the process, read at each look-up.
    """

    def __init__(self, home: Path, environ: MutableMapping[str, str]) -> None:
        self._dotenv = home / ".env"
        self._environ = environ
        self._exported: dict[str, str] = {}
        self._first: dict[str, FetchedValue] = {}
        self._last: dict[str, FetchedValue] = {}
        self._parsed: dict[Path, tuple[_State, dict[str, str]]] = {}

    def get(self, name: str) -> str | None:
        """Return the value of `name`, or None.

        Raises:
            ValueError: `name` is no name of a file or variable (`../x`, `a/b`, empty).
        """
        _check(name)
        if found := self._first.get(name):
            return found.value
        if value := self.get_own(name):
            return value
        found = self._last.get(name)
        return found.value if found else None

    def get_own(self, name: str) -> str | None:
        """Return the value of `name` without those of secret sources, or None.

        Raises:
            ValueError: as `get`.
        """
        _check(name)
        for values in self._places(name):
            if value := values.get(name):
                return value
        return None

    def set_fetched(
        self, first: Mapping[str, FetchedValue], last: Mapping[str, FetchedValue], *, keep_of: Collection[str] = ()
    ) -> None:
        """Replace the values of secret sources.

        Args:
            first: values above all other places, by name.
            last: values below all other places.
            keep_of: the earlier values of these sources stay, where no other source has the name.
        """
        fresh = first.keys() | last.keys()

        def kept(values: Mapping[str, FetchedValue]) -> dict[str, FetchedValue]:
            return {name: each for name, each in values.items() if each.source in keep_of and name not in fresh}

        self._first, self._last = kept(self._first) | dict(first), kept(self._last) | dict(last)

    def export(self, environ: MutableMapping[str, str] | None = None) -> tuple[str, ...]:
        """Add the values of the other places to `environ`, for code that reads variables.

        A value of an earlier export follows its place: it changes with it, and goes with it.

        `/proc/PID/environ`, which other processes see, does not change.

        Returns:
        The names that were added, sorted. Credential files without the name of a variable are left out.
        """
        environ = self._environ if environ is None else environ
        found = {name: each.value for name, each in self._last.items()}
        for values in (self._env_file(self._dotenv), *reversed(list(self._credential_values()))):
            found.update({name: value for name, value in values.items() if value})
        above = {name: each.value for name, each in self._first.items()}
        exported = self._exported if environ is self._environ else {}
        fresh = above | {
            name: value
            for name, value in found.items()
            if name not in above
            and environ.get(name) in (None, "", exported.get(name))
            and _VARIABLE.fullmatch(name)
            and "\0" not in value
        }
        for name in exported.keys() - found.keys() - above.keys():
            if environ.get(name) == exported[name]:
                del environ[name]
        environ.update(fresh)
        if environ is self._environ:
            self._exported |= fresh
        return tuple(sorted(fresh))

    def secrets(self, declared: Mapping[str, bool] | None = None) -> frozenset[str]:
        """Return all secret values in these places, for `core.redaction.redactor`.

        In `.env`, `env-*` files and the environment, the declaration of a variable, its name or the form of its value
        decides (`core.secrecy`); the form does not count in the environment of the process, which others set as well. A
        file of the credentials directory and a value of a secret source are secrets, unless a declaration, or both name
        and value, say otherwise.

        Args:
            declared: by variable, whether a plugin or the config declares it a secret.
        """
        declarations = declared or {}
        alone, *env_files = self._credential_values()
        fetched = {name: each.value for name, each in (*self._last.items(), *self._first.items())}
        found = [
            secret
            for values in (self._env_file(self._dotenv), *env_files)
            for name, value in values.items()
            for secret in find_secrets(name, value, declared=declarations.get(name))
        ]
        for name, value in (*alone.items(), *fetched.items()):
            found += find_secrets(
                name,
                value,
                declared=declarations.get(name, not (name_kind(name) == "public" and is_public_value(value))),
            )
        for name, value in self._environ.items():
            is_secret = declarations.get(name, None if name_kind(name) in ("secret", "vague") else False)
            if is_secret is not False or "://" in value:
                found += find_secrets(name, value, declared=is_secret)
        return frozenset(secret for secret in found if secret)

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each problem with these places."""
        try:
            mode = stat.S_IMODE(self._dotenv.stat().st_mode)
        except OSError:
            return ()
        if mode & 0o077 == 0:
            return ()
        return (f"{self._dotenv} can be read by other users (mode {mode:04o}): run `chmod 600 {self._dotenv}`",)

    def _places(self, name: str) -> Iterator[Mapping[str, str]]:
        if directory := self._directory():
            if value := _read(directory / name):
                yield {name: value}
            for path in _env_files(directory):
                yield self._env_file(path)
        own = self._environ.get(name)
        if own and own != self._exported.get(name):
            yield {name: own}
        yield self._env_file(self._dotenv)

    def _credential_values(self) -> Iterator[Mapping[str, str]]:
        """Return the credentials directory in order of precedence: its single files, then each `env-*` file."""
        directory = self._directory()
        if directory is None:
            yield {}
            return
        env_files = _env_files(directory)
        yield {
            path.name: value
            for path in sorted(directory.iterdir())
            if path not in env_files and path.is_file() and (value := _read(path))
        }
        for path in env_files:
            yield self._env_file(path)

    def _directory(self) -> Path | None:
        given = self._environ.get("CREDENTIALS_DIRECTORY")
        path = Path(given) if given else None
        return path if path is not None and path.is_dir() else None

    def _env_file(self, path: Path) -> dict[str, str]:
        """Return the values of a file of `NAME=value` lines; none if it is missing or cannot be read."""
        try:
            state = FileStamp.of(path.stat())
            known = self._parsed.get(path)
            if known is None or known[0] != state:
                known = (state, read_env_file(path))
                self._parsed[path] = known
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as exc:
            logger.warning("credentials: cannot read %s, its values are missing: %s", path, _reason(exc))
            return {}
        return known[1]


def _check(name: str) -> None:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"{name!r} cannot be the name of a credential")


def _env_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("env-*") if path.is_file())


def _read(path: Path) -> str | None:
    """Return the text of a credential file without the line break at its end."""
    try:
        return path.read_text("utf-8").rstrip("\r\n") or None
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        logger.warning("credentials: cannot read %s: %s", path, _reason(exc))
        return None


def _reason(exc: Exception) -> str:
    return (exc.strerror or type(exc).__name__) if isinstance(exc, OSError) else "it is not UTF-8 text"
