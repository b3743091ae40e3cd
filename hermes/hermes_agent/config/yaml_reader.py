"""A YAML reader for config files: plain values with their lines.

It rejects what YAML would change silently: keys that are not texts, duplicate keys, tags, more than one document,
`.inf` and `.nan`. It also rejects files above 1 MiB, 64 levels, or 100,000 values with aliases followed.
"""

from __future__ import annotations

from pathlib import Path

from hermes_agent.config.yaml_document import ConfigDocument, ConfigFinding

MAX_BYTES = 1024 * 1024


def read_file(path: Path, name: str | None = None) -> ConfigDocument:
    """Read the YAML file at `path`; a missing one is an empty document with `exists` False.

    Args:
        name: name for the findings; None is the path.
    """
    name = str(path) if name is None else name
    data = decode_file(path, name)
    if data is None:
        return ConfigDocument(name, exists=False)
    return ConfigDocument(name, findings=[data]) if isinstance(data, ConfigFinding) else read_text(data, name)


def decode_file(path: Path, name: str) -> str | ConfigFinding | None:
    """Return the text of a UTF-8 file of at most `MAX_BYTES`.

    A finding if it cannot be read, None if missing.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ConfigFinding(name, None, None, "", f"cannot be read: {error.strerror}")
    if len(data) > MAX_BYTES:
        return ConfigFinding(name, None, None, "", "is larger than 1 MiB, which no config is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return ConfigFinding(name, 1, None, "", "is written in UTF-16; save it as UTF-8")
        line = data.count(b"\n", 0, error.start) + 1
        return ConfigFinding(
            name, line, None, "", f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        )


def read_text(text: str, name: str) -> ConfigDocument:
    """Parse `text`; an empty one is an empty mapping."""
    from hermes_agent.config.yaml_builder import ValueBuilder  # PyYAML takes longer than a listing of plugins

    document = ConfigDocument(name)
    ValueBuilder(document).build(text)
    return document
