"""Archives that a kernel unpacks into its first file system (cpio, format newc), made without root."""

from __future__ import annotations

import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

__all__ = ["add_files", "add_tar"]

END = "TRAILER!!!"
KINDS = {
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.CHRTYPE: stat.S_IFCHR,
    tarfile.BLKTYPE: stat.S_IFBLK,
    tarfile.FIFOTYPE: stat.S_IFIFO,
}


def add_tar(out: BinaryIO, source: Path) -> None:
    """Write what a tar archive has, owners and devices too."""
    with tarfile.open(source) as tar:
        for member in tar:
            name = member.name.removeprefix("./").strip("/")
            if name in ("", "."):
                continue
            data = b""
            if member.isreg() or member.islnk():  # a hard link becomes a file of its own
                file = tar.extractfile(member)
                data = file.read() if file is not None else b""
            elif member.issym():
                data = member.linkname.encode()
            kind = KINDS.get(member.type, stat.S_IFREG)
            device = (member.devmajor, member.devminor) if member.isdev() else (0, 0)
            _entry(out, name, kind | member.mode, data, owner=(member.uid, member.gid), device=device)
    _entry(out, END, 0, b"")


def add_files(out: BinaryIO, files: Mapping[str, Path | str]) -> None:
    """Write files of root's at absolute paths: a `Path` is copied with all that is in it, a text is executable."""
    made: set[str] = set()
    for target, source in files.items():
        _above(out, target, made)
        if isinstance(source, str):
            _entry(out, target.strip("/"), stat.S_IFREG | 0o755, source.encode())
        elif source.is_dir():
            for path in sorted(source.rglob("*")):
                if "__pycache__" not in path.parts and path.is_file():
                    inside = f"{target}/{path.relative_to(source)}"
                    _above(out, inside, made)
                    _copy(out, inside, path)
        else:
            _copy(out, target, source)
    _entry(out, END, 0, b"")


def _copy(out: BinaryIO, target: str, path: Path) -> None:
    _entry(out, target.strip("/"), stat.S_IFREG | (0o755 if path.stat().st_mode & 0o100 else 0o644), path.read_bytes())


def _above(out: BinaryIO, target: str, made: set[str]) -> None:
    for above in reversed(Path(target).parents):
        name = str(above).strip("/")
        if name and name not in made:
            made.add(name)
            _entry(out, name, stat.S_IFDIR | 0o755, b"")


def _entry(
    out: BinaryIO,
    name: str,
    mode: int,
    data: bytes,
    *,
    owner: tuple[int, int] = (0, 0),
    device: tuple[int, int] = (0, 0),
) -> None:
    encoded = name.encode() + b"\0"
    fields = (0, mode, *owner, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
    out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
    out.write(b"\0" * (-(110 + len(encoded)) % 4))
    out.write(data + b"\0" * (-len(data) % 4))
