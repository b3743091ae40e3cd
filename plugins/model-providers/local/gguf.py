"""Metadata of a GGUF file: architecture, context length, chat template and the size of its cache."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
MOST_KEYS = 4096
MOST_BYTES = 1 << 26
"""Longest text or list that is read; a broken file states any length."""


SystemPlace = Literal["anywhere", "first", "question"]
"""Where a template takes system messages: at any place, one before all others, or none, so that a question has it."""


class GgufError(ValueError):
    """The file is no GGUF file, or its metadata is broken."""


@dataclass(frozen=True, slots=True)
class GgufMetadata:
    """What the adapter reads of a model file."""

    architecture: str
    name: str
    context_length: int
    """Tokens for which the model was trained; 0 if the file does not say."""
    chat_template: str
    """Its Jinja template, or ""."""
    cache_bytes_per_token: int
    """Bytes of the attention cache for a token in 16 bits; 0 if the file does not say."""

    @property
    def writes_tool_calls(self) -> bool:
        """Whether the template itself describes tools and their calls."""
        return "tools" in self.chat_template or "tool_call" in self.chat_template

    @property
    def system_place(self) -> SystemPlace:
        """Where its template takes the system prompt."""
        if not self.chat_template:
            return "anywhere"
        takes_one = (
            re.search("['\"]system['\"]", self.chat_template) and "System role not supported" not in self.chat_template
        )
        return "first" if takes_one else "question"


def read_metadata(path: Path) -> GgufMetadata:
    """Return the metadata; lists such as the vocabulary are passed over.

    Raises:
        GgufError: it is no GGUF file of version 2 or 3.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise GgufError(f"{path} is no GGUF file")
        version = _number(file, "<I")
        if version not in (2, 3):
            raise GgufError(f"{path}: version {version} of GGUF cannot be read; versions 2 and 3 can")
        _number(file, "<Q")  # tensors
        count = _number(file, "<Q")
        if count > MOST_KEYS:
            raise GgufError(f"{path} states {count} keys of metadata")
        values = {_string(file): _value(file, _number(file, "<I")) for _ in range(count)}
    return _describe(values)


def _describe(values: Mapping[str, Any]) -> GgufMetadata:
    architecture = str(values.get("general.architecture") or "")

    def number(key: str) -> int:
        found = values.get(f"{architecture}.{key}")
        return found if isinstance(found, int) else 0

    heads = number("attention.head_count")
    width = number("embedding_length") // heads if heads else 0
    key, value = number("attention.key_length") or width, number("attention.value_length") or width
    cache = 2 * number("block_count") * (number("attention.head_count_kv") or heads) * (key + value)
    return GgufMetadata(
        architecture,
        str(values.get("general.name") or ""),
        number("context_length"),
        str(values.get("tokenizer.chat_template") or ""),
        cache,
    )


def _number(file: BinaryIO, form: str) -> Any:
    size = struct.calcsize(form)
    data = file.read(size)
    if len(data) != size:
        raise GgufError("the file ends in its metadata")
    return struct.unpack(form, data)[0]


def _string(file: BinaryIO) -> str:
    length = _number(file, "<Q")
    if length > MOST_BYTES:
        raise GgufError(f"a text of its metadata has {length} bytes")
    data = file.read(length)
    if len(data) != length:
        raise GgufError("the file ends in its metadata")
    return data.decode(errors="replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _skip_array(file)
    if kind not in _FORMATS:
        raise GgufError(f"type {kind} of a value is unknown")
    return _number(file, _FORMATS[kind])


def _skip_array(file: BinaryIO) -> None:
    kind, count = _number(file, "<I"), _number(file, "<Q")
    if kind in _FORMATS:
        file.seek(count * struct.calcsize(_FORMATS[kind]), 1)
    elif kind == _STRING:
        for _ in range(count):
            file.seek(_number(file, "<Q"), 1)
    else:
        raise GgufError(f"a list of type {kind} in its metadata")
