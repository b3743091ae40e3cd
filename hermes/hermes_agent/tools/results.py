"""Folders of the agent's home for the files of one principal: uploads, generated files, long results.

Adapters and plugins write into the caches that all share, which no tool may open. Whoever learns whose such a file is
moves it into the folder of that principal (`core.home_files` says who may open it there).

What a tool gives back: the shapes of errors, the size limit, and where a long text is kept.

Source: plugin contract §4.1, §4.4, §4.10.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.config.home import PRINCIPALS
from hermes_agent.core.messages import ToolStatus, error_object
from hermes_agent.sessions import folder_name
from hermes_agent.system.files import PRIVATE, write_atomic

_KINDS = {
    "cache/audio": "audio",
    "cache/documents": "documents",
    "cache/images": "images",
    "cache/screenshots": "images",
    "cache/videos": "videos",
    "audio_cache": "audio",
    "browser_screenshots": "images",
    "document_cache": "documents",
    "image_cache": "images",
    "video_cache": "videos",
}
"""Shared caches below the home, and what the folder of their files is called then."""
_SLACK_S = 0.1  # the clock of a file system is coarser


def principal_folder(home: Path, principal: str, kind: str) -> Path:
    """Return the folder of a principal for files of one kind; it need not exist."""
    return home / PRINCIPALS / folder_name(principal) / kind


def adopt_file(path: str, home: Path, principal: str) -> str:
    """Move a file of a shared cache to its principal and return its path; any other path is returned as it is.

    A file that was moved before is found again by its old path: a message may be served twice.
    """
    kind = _cached_kind(path, home)
    if kind is None:
        return path
    folder = principal_folder(home, principal, kind)
    target = folder / os.path.basename(path)  # noqa: PTH119 - as text
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:  # no other name of a file that is elsewhere
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(path, target)  # noqa: PTH104 - as above
    return str(target) if target.is_file() else path


def adopt_result_files(result: str, home: Path, principal: str, since: float) -> str:
    """Return the result of a tool with the paths of the files that it wrote into a shared cache, which are moved.

    Args:
        since: when the call began, in seconds since the epoch: older files are somebody else's.
    """
    if str(home) not in result:
        return result
    found = re.compile(re.escape(str(home)) + r"/[^\s\"'`<>\\)\]]+").findall(result)
    for path in dict.fromkeys(sorted(found, key=len, reverse=True)):
        if _cached_kind(path, home) is None:
            continue
        with contextlib.suppress(OSError):
            if os.lstat(path).st_ctime >= since - _SLACK_S:
                result = result.replace(path, adopt_file(path, home, principal))
    return result


def _cached_kind(path: str, home: Path) -> str | None:
    """Return what a file of a shared cache is; None for one that lies elsewhere."""
    real = os.path.realpath(os.path.dirname(path))  # noqa: PTH120 - as text
    place = real.removeprefix(f"{os.path.realpath(home)}/")
    if place == real:
        return None
    return next((kind for cache, kind in _KINDS.items() if place == cache or place.startswith(f"{cache}/")), None)


logger = logging.getLogger(__name__)

ERROR_LIMIT = 2_000
PREVIEW_CHARS = 1_500
DEFAULT_LIMIT = 100_000

_ROLE_TAG = re.compile(r"</?(?:system|assistant|user|tool|developer|function)\b[^>]*>", re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*")
_CDATA = re.compile(r"<!\[CDATA\[|\]\]>")
_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9_.-]")


def tool_error(message: object, **extra: Any) -> str:
    """Return the JSON text `{"error": message, …}`."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False, default=str)


def tool_result(data: Any = None, **kwargs: Any) -> str:
    """Return `data`, or the keywords, as JSON text."""
    return json.dumps(kwargs if data is None else data, ensure_ascii=False, default=str)


def failure(text: str) -> str:
    """Return the error object of a tool that failed: role tags and fences removed, at most `ERROR_LIMIT` characters."""
    clean, before = text[: 4 * ERROR_LIMIT], ""
    while clean != before:  # of `<sys<system>tem>` one pass would leave a tag
        before, clean = clean, _CDATA.sub("", _FENCE.sub("", _ROLE_TAG.sub("", clean)))
    if len(clean) > ERROR_LIMIT:
        clean = clean[: ERROR_LIMIT - 3] + "..."
    return tool_error(f"[TOOL_ERROR] {clean}")


def is_result(value: Any) -> bool:
    """Say whether a handler may return `value`: text, or a multimodal mapping (§4.1)."""
    return isinstance(value, str) or (
        isinstance(value, dict) and value.get("_multimodal") is True and isinstance(value.get("content"), list)
    )


def result_text(tool: str, value: Any) -> str:
    """Return the text of what a handler returned, or the contract error when it is of another type."""
    if isinstance(value, str):
        return value
    if is_result(value):
        summary = value.get("text_summary")
        parts = [str(p.get("text", "")) for p in value["content"] if isinstance(p, dict) and p.get("type") == "text"]
        return str(summary) if summary else "\n".join(parts)
    kind = type(value).__name__
    return tool_error(
        f"Tool handler returned unsupported result type: {kind}",
        error_type="tool_result_contract",
        tool=tool,
        result_type=kind,
    )


def status_of(result: str) -> tuple[ToolStatus, str, str]:
    """Return status, error type and error message that a result stands for (plugin contract §3.2)."""
    if (value := error_object(result)) is not None:
        return "error", str(value.get("error_type") or "tool_error"), str(value["error"])
    return "ok", "", ""


@dataclass(frozen=True, slots=True)
class ResultStore:
    """Keeps the full text of results that are too long for the model.

    Attributes:
        home: the agent's home, which has a folder for each principal (`own_files`); made at first use.
    """

    home: Path

    def fit(
        self,
        call_id: str,
        text: str,
        principal: str,
        limit: float | None = None,
        *,
        kept: Callable[[Path], None] = lambda path: None,
    ) -> str:
        """Return `text`, or, when it is longer than `limit` characters, a preview that names the file it is in.

        Args:
            kept: told that file.
        """
        bound = DEFAULT_LIMIT if limit is None else limit
        if len(text) <= bound:
            return text
        try:
            path = self._keep(call_id, text, principal)
            kept(path)
            place = f"Full output saved to: {path}"
        except OSError as exc:
            logger.error("the result of call %s could not be kept in %s: %s", call_id, self.home, exc)
            place = f"The rest is lost, it could not be saved: {exc.strerror or exc}"
        preview = text[:PREVIEW_CHARS]
        return "\n".join(
            (
                "<persisted-output>",
                f"This tool result was too large ({len(text):,} characters, {len(text.encode()) / 1024:.1f} KB).",
                place,
                "Use the read_file tool with offset and limit to access specific sections of this output.",
                "",
                f"Preview (first {len(preview):,} chars):",
                preview,
                "...",
                "</persisted-output>",
            )
        )

    def _keep(self, call_id: str, text: str, principal: str) -> Path:
        directory = principal_folder(self.home, principal, "results")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # ids of calls repeat from one conversation to the next, so the name needs more than them
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        path = directory / f"{_UNSAFE_NAME.sub('_', call_id)[:80] or 'result'}-{digest}.txt"
        write_atomic(path, text, mode=PRIVATE)
        return path
