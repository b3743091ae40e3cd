"""Files that are sent into a chat are sent as they were when the answer was composed.

A command that still runs may exchange a file of the working directory for a link, until an adapter opens it by its
path. So it gets a copy, read by descriptors, in a place that commands cannot write to.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

from hermes_agent.config import hermes_home
from hermes_agent.io.beneath import hold_directory, open_beneath
from hermes_agent.io.files import PRIVATE

__all__ = ["FOLDER", "copy_sent_file"]

logger = logging.getLogger(__name__)

FOLDER = "sent"
"""Below `HERMES_HOME/cache`."""
PIECE_BYTES = 1 << 24


def copy_sent_file(path: str) -> str | None:
    """Return what is sent for a file that may be: its copy, or the file itself where no command can write to it.

    Args:
        path: real path, as `validate_media_delivery_path` returns it.

    Returns:
        None where the file is gone, is none any more, or cannot be copied; the log says why.
    """
    cache = hermes_home().resolve() / "cache"
    if Path(path).is_relative_to(cache):
        return path
    directory, name = os.path.split(path)
    place = cache / FOLDER / os.urandom(8).hex()
    try:
        with hold_directory(directory, make=False) as above:
            source = open_beneath(above, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            place.mkdir(mode=0o700, parents=True)
            _copy(source, place / name)
        finally:
            os.close(source)
    except OSError as exc:
        logger.warning("not sent into the chat: %s cannot be copied: %s", path, exc.strerror or exc)
        return None
    return str(place / name)


def _copy(source: int, target: Path) -> None:
    if not stat.S_ISREG(os.fstat(source).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        while os.sendfile(handle, source, None, PIECE_BYTES):  # from where it stands, until its end
            pass
    finally:
        os.close(handle)
