"""Look up a secret by name, wherever the operator put it.

The places, the first that has the name wins:

1. the file `NAME` in `$CREDENTIALS_DIRECTORY` (systemd's `LoadCredential=`, `SetCredential=`)
2. the files `env-*` there: lines `NAME=value`
3. the environment of the process
4. `$HERMES_HOME/.env`

A place that has the name with an empty value does not have it. Files are read again when they change, so a
rotated key is seen without a restart.
"""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

from hermes_agent.config.dotenv import read_env_file
from hermes_agent.core.secrecy import find_secrets, is_public_value, name_kind
from hermes_agent.system.files import FileStamp

logger = logging.getLogger(__name__)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_State = FileStamp | None


class Credentials:
    """The secrets of one home. Safe for threads: it keeps nothing but what the files said.

    Args:
        home: `$HERMES_HOME`; its `.env` is the last place.
        environ: the process environment, read at each look-up.
    """

    def __init__(self, home: Path, environ: MutableMapping[str, str]) -> None:
        self._dotenv = home / ".env"
        self._environ = environ
        self._exported: dict[str, str] = {}
        self._parsed: dict[Path, tuple[_State, dict[str, str]]] = {}

    def get(self, name: str) -> str | None:
        """Return the value of `name`; None when no place has it.

        Raises:
            ValueError: `name` could not be the name of a file or a variable (`../x`, `a/b`, empty).
        """
        _check(name)
        for values in self._places(name):
            if value := values.get(name):
                return value
        return None

    def export(self, environ: MutableMapping[str, str]) -> tuple[str, ...]:
        """Set in `environ` what the other places give and it lacks, for code that reads variables.

        What another process sees in `/proc/PID/environ` does not change by that.

        Returns:
            The names that were set, sorted. Credential files whose name is no variable's are left out.
        """
        found: dict[str, str] = {}
        for values in (self._env_file(self._dotenv), *reversed(list(self._credential_values()))):
            found.update({name: value for name, value in values.items() if value})
        fresh = {
            name: value
            for name, value in found.items()
            if not environ.get(name) and _VARIABLE.fullmatch(name) and "\0" not in value
        }
        environ.update(fresh)
        if environ is self._environ:
            self._exported |= fresh
        return tuple(sorted(fresh))

    def secrets(self, declared: Mapping[str, bool] | None = None) -> frozenset[str]:
        """Return every secret value that the places hold now; `core.redact.redactor` is to learn them.

        In `.env`, `env-*` files and the environment, the declaration of a variable, its name or the form of its value
        decides (`core.secrecy`); in the environment of the process, which is not the agent's alone, not the form. A
        single file of the credentials directory is a secret by its place, unless a declaration, or both its name and
        its value, say that it is none.

        Args:
            declared: by variable, whether a plugin or the config declares it a secret.
        """
        told = declared or {}
        alone, *env_files = self._credential_values()
        found = [
            secret
            for values in (self._env_file(self._dotenv), *env_files)
            for name, value in values.items()
            for secret in find_secrets(name, value, declared=told.get(name))
        ]
        for name, value in alone.items():
            found += find_secrets(
                name, value, declared=told.get(name, not (name_kind(name) == "public" and is_public_value(value)))
            )
        for name, value in self._environ.items():
            said = told.get(name, None if name_kind(name) in ("secret", "vague") else False)
            if said is not False or "://" in value:
                found += find_secrets(name, value, declared=said)
        return frozenset(secret for secret in found if secret)

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each thing that is wrong with the places; empty when all is well."""
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
        """The credentials directory, in order of precedence: its single files, then each `env-*` file."""
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
        """The values of a file of `NAME=value` lines; empty when it is absent or cannot be read."""
        try:
            state = FileStamp.of(path.stat())
            known = self._parsed.get(path)
            if known is None or known[0] != state:
                known = (state, read_env_file(path))
                self._parsed[path] = known
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as exc:
            logger.warning("cannot read %s: %s; its values are missing", path, _reason(exc))
            return {}
        return known[1]


def _check(name: str) -> None:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"{name!r} cannot be the name of a credential")


def _env_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("env-*") if path.is_file())


def _read(path: Path) -> str | None:
    """The text of a credential file without the line break that an editor leaves at its end."""
    try:
        return path.read_text("utf-8").rstrip("\r\n") or None
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        logger.warning("cannot read the credential %s: %s", path, _reason(exc))
        return None


def _reason(exc: Exception) -> str:
    return (exc.strerror or type(exc).__name__) if isinstance(exc, OSError) else "it is not UTF-8 text"
