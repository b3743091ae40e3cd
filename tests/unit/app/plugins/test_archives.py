"""Archives of strangers: what is taken, and what is refused without a trace outside of the target."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.app.plugins.sources import ARCHIVES, MAX_FILES, copy_tree, unpack
from hermes_agent.core.errors import UserError

TarMember = Callable[[tarfile.TarFile], None]


def tar_entry(name: str, data: bytes = b"", **fields: object) -> TarMember:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        for field, value in fields.items():
            setattr(info, field, value)
        tar.addfile(info, io.BytesIO(data))

    return add


def make_tar(path: Path, *members: TarMember) -> Path:
    ending = path.name.rpartition(".")[2]
    modes = {"tar": "w", "gz": "w:gz", "tgz": "w:gz", "bz2": "w:bz2", "tbz2": "w:bz2", "xz": "w:xz", "txz": "w:xz"}
    with tarfile.open(path, modes[ending]) as tar:
        for add in members:
            add(tar)
    return path


def make_zip(path: Path, name: str, data: bytes, mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return path


@pytest.mark.parametrize("ending", ARCHIVES)
def test_every_kind_is_unpacked_with_its_executable_bits(tmp_path: Path, ending: str) -> None:
    archive = tmp_path / f"p{ending}"
    if ending == ".zip":
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("p/plugin.yaml", "name: p\n")
            info = zipfile.ZipInfo("p/run")
            info.external_attr = (stat.S_IFREG | 0o4777) << 16
            made.writestr(info, "#!/bin/sh\n")
    else:
        make_tar(
            archive,
            tar_entry("p", type=tarfile.DIRTYPE, mode=0o777),
            tar_entry("p/plugin.yaml", b"name: p\n"),
            tar_entry("p/run", b"#!/bin/sh\n", mode=0o4777),
        )

    unpack(archive, tmp_path / "out")

    assert (tmp_path / "out/p/plugin.yaml").read_text() == "name: p\n"
    assert stat.S_IMODE((tmp_path / "out/p/run").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "out/p/plugin.yaml").stat().st_mode) == 0o644


def symlink(name: str, leads: str) -> TarMember:
    return tar_entry(name, type=tarfile.SYMTYPE, linkname=leads)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([tar_entry("../evil", b"x")], "leads out"),
        ([tar_entry("a/../../evil", b"x")], "leads out"),
        ([tar_entry("/evil", b"x")], "leads out"),
        ([tar_entry("..\\evil", b"x")], "leads out"),
        ([symlink("l", "/etc")], "link"),
        ([symlink("l", "../..")], "link"),
        ([symlink("a/l", "../../x")], "link"),
        ([tar_entry("h", type=tarfile.LNKTYPE, linkname="/etc/passwd")], "hard link"),
        ([tar_entry("d", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "neither a file"),
        ([tar_entry("f", type=tarfile.FIFOTYPE)], "neither a file"),
        ([tar_entry("x/f", b"x"), symlink("l", "x"), tar_entry("l/g", b"x")], "own link"),
        ([symlink("l", "target"), tar_entry("l", b"x")], "own link|File exists|exists"),
        ([tar_entry("big", b"\0" * 40_000_000)], "200 times"),
        ([tar_entry(str(n)) for n in range(MAX_FILES + 1)], "too large"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_a_tar_that_would_harm_is_refused(tmp_path: Path, members: list[TarMember], reason: str) -> None:
    archive = make_tar(tmp_path / "p.tar.gz", *members)

    with pytest.raises(UserError, match=reason):
        unpack(archive, tmp_path / "deep" / "out")

    assert sorted(os.listdir(tmp_path)) == ["deep", "p.tar.gz"]
    assert os.listdir(tmp_path / "deep") == ["out"]


@pytest.mark.parametrize(
    ("name", "data", "mode", "reason"),
    [
        ("../evil", b"x", 0, "leads out"),
        ("/evil", b"x", 0, "leads out"),
        ("l", b"/etc/passwd", stat.S_IFLNK | 0o777, "link"),
        ("f", b"", stat.S_IFIFO | 0o644, "neither a file"),
        ("bomb", b"\0" * 60_000_000, 0, "200 times"),
    ],
)
def test_a_zip_that_would_harm_is_refused(tmp_path: Path, name: str, data: bytes, mode: int, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        unpack(make_zip(tmp_path / "p.zip", name, data, mode), tmp_path / "deep" / "out")

    assert sorted(os.listdir(tmp_path)) == ["deep", "p.zip"]


def test_a_link_that_stays_inside_is_kept(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "p.tar", tar_entry("p/a.py", b"1"), symlink("p/b.py", "a.py"))

    unpack(archive, tmp_path / "out")

    assert os.readlink(tmp_path / "out/p/b.py") == "a.py"


@pytest.mark.parametrize("data", [b"", b"not an archive", b"PK\x03\x04broken"])
def test_a_damaged_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p.zip").write_bytes(data)

    with pytest.raises(UserError, match=r"p\.zip cannot be unpacked"):
        unpack(tmp_path / "p.zip", tmp_path / "out")


def test_a_folder_is_copied_without_version_control_pipes_and_links_out(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / ".git").mkdir(parents=True)
    (source / "pkg" / "__pycache__").mkdir(parents=True)
    (source / "pkg" / "a.py").write_text("1")
    (source / "pkg" / "inner").symlink_to("a.py")
    copy_tree(source, tmp_path / "out", "src")
    assert sorted(p.name for p in (tmp_path / "out").rglob("*")) == ["a.py", "inner", "pkg"]

    (source / "pkg" / "out").symlink_to("../../secret")
    with pytest.raises(UserError, match=r"pkg/out is a link to '../../secret'"):
        copy_tree(source, tmp_path / "second", "src")

    (source / "pkg" / "out").unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(UserError, match="pipe is neither"):
        copy_tree(source, tmp_path / "third", "src")
