"""Whether a text is what its file's name says: Python, JSON, YAML, TOML."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["syntax_error"]


def syntax_error(path: str, text: str) -> str:
    """Return what is wrong with the syntax, with the line; empty when nothing is, or the language is not known."""
    check = _CHECKS.get(path.rpartition(".")[2].lower())
    if check is None or "." not in path.rpartition("/")[2]:
        return ""
    try:
        check(text)
    except RecursionError:
        return ""
    except (SyntaxError, ValueError) as exc:
        if isinstance(exc, SyntaxError):
            return f"line {exc.lineno}: {exc.msg}"
        return str(exc)[:300]
    return ""


def _python(text: str) -> None:
    import ast  # few calls check a syntax, here and below

    ast.parse(text)


def _json(text: str) -> None:
    import json

    json.loads(text)


def _yaml(text: str) -> None:
    import yaml

    try:
        for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            pass
    except yaml.YAMLError as exc:
        raise ValueError(" ".join(str(exc).split())) from None


def _toml(text: str) -> None:
    import tomllib

    tomllib.loads(text)


_CHECKS: dict[str, Callable[[str], None]] = {"py": _python, "json": _json, "yaml": _yaml, "yml": _yaml, "toml": _toml}
