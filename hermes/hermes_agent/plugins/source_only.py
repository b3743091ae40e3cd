"""Import what was granted: from below a pinned directory no `__pycache__` is read, and none is written.

A pin covers sources. Bytecode beside them is trusted by Python for its time stamp alone, so a planted `.pyc` would run
in place of a pinned source. A hook of the path sees every import from those directories, also the ones of a plugin that
puts its own directory on `sys.path`.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType

__all__ = ["SourceOnlyLoader", "ignore_bytecode"]

_directories: set[str] = set()


class SourceOnlyLoader(SourceFileLoader):
    """Compiles the source at every load."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the source as it is now."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


_LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceOnlyLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),  # `name.pyc` beside the sources is a pinned file
)


def ignore_bytecode(directory: str) -> None:
    """Let every later import from `directory` and below it do without `__pycache__`, in this process."""
    _directories.update({f"{os.path.abspath(directory)}/", f"{os.path.realpath(directory)}/"})  # noqa: PTH100
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
    for known in [path for path in sys.path_importer_cache if _is_below(path)]:
        del sys.path_importer_cache[known]


def _finder(path: str) -> FileFinder:
    if not _is_below(path):
        raise ImportError(f"{path} is not below a pinned plugin", path=path)
    return FileFinder(path, *_LOADERS)


def _is_below(path: str) -> bool:
    return bool(_directories) and f"{os.path.abspath(path)}/".startswith(tuple(_directories))  # noqa: PTH100
