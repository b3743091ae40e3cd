"""Files of the shared caches that become one user's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hermes_agent.tools.results import adopt_file, adopt_result_files, principal_folder
from waiting import until


def cached(home: Path, name: str = "a.png", folder: str = "cache/images") -> Path:
    place = home / folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"x")
    return place


@pytest.mark.parametrize(
    ("folder", "kind"), [("cache/images", "images"), ("document_cache", "documents"), ("cache/audio/deep", "audio")]
)
def test_a_cached_file_is_moved_once_and_found_again_by_its_old_path(tmp_path: Path, folder: str, kind: str) -> None:
    path = cached(tmp_path, folder=folder)
    target = tmp_path / "cache/people/irc%3Aada" / kind / "a.png"
    assert adopt_file(str(path), tmp_path, "irc:ada") == str(target)
    assert adopt_file(str(path), tmp_path, "irc:ada") == str(target)
    assert target.read_bytes() == b"x" and not path.exists()
    assert target.parent.stat().st_mode & 0o777 == 0o700


def test_what_lies_elsewhere_or_has_another_name_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "config.yaml"
    elsewhere.write_text("x")
    link, hard = cached(tmp_path, "link"), cached(tmp_path, "hard")
    link.unlink()
    link.symlink_to(elsewhere)
    hard.unlink()
    os.link(elsewhere, hard)
    above = f"{tmp_path}/cache/images/../../config.yaml"
    for path in (str(elsewhere), str(link), str(hard), above, "/no/such/file"):
        assert adopt_file(path, tmp_path, "irc:ada") == path
    assert elsewhere.exists()


def test_of_a_result_what_was_written_during_the_call_is_moved(tmp_path: Path) -> None:
    old = cached(tmp_path, "old.png")
    until(lambda: old.stat().st_ctime + 0.3 < time.time())  # more than the slack of the comparison
    since = time.time()
    new = cached(tmp_path, "new.png")
    told = f'{{"image": "{new}", "other": "{old}", "tag": "MEDIA:{new}"}}'
    found = adopt_result_files(told, tmp_path, "irc:ada", since)
    target = principal_folder(tmp_path, "irc:ada", "images") / "new.png"
    assert found == f'{{"image": "{target}", "other": "{old}", "tag": "MEDIA:{target}"}}'
    assert old.exists() and target.exists() and not new.exists()


def test_a_long_name_of_a_user_makes_a_folder(tmp_path: Path) -> None:
    names = {principal_folder(tmp_path, f"matrix:@{'ü' * 300}{end}", "images") for end in "ab"}
    for place in names:
        place.mkdir(parents=True)
    assert len(names) == 2
