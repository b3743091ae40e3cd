"""Results of tools: error objects, size limit, storage of long texts, and the files that tools make.

Adapters and plugins write files into shared caches, which no tool may open. The code that knows the principal of such a
file moves it into the folder of that principal (`workspace.paths` decides which files may be opened). Source: plugin
contract §4.1, §4.4, §4.10.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import json
import logging
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_agent.config.home import PRINCIPALS
from hermes_agent.contracts.tool import ToolEntry
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.messages import ToolStatus, error_object
from hermes_agent.core.text import shorten
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
"""Shared caches below the home, with the name of the principal's folder for their files."""
_SLACK_S = 0.1  # seconds; file systems have coarser clocks


def principal_folder(home: Path, principal: str, kind: str) -> Path:
    """Return the folder of a principal for files of one kind; it may not exist."""
    return home / PRINCIPALS / folder_name(principal) / kind


def adopt_file(path: str, home: Path, principal: str) -> str:
    """Move a file of a shared cache to its principal and return the new path.

    Return any other path unchanged. A file that was moved before is found by its old path, since a message may be
    processed twice.
    """
    kind = _cached_kind(path, home)
    if kind is None:
        return path
    folder = principal_folder(home, principal, kind)
    target = folder / os.path.basename(path)  # noqa: PTH119 - as text
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:  # not a second name of a file outside
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(path, target)  # noqa: PTH104 - as above
    return str(target) if target.is_file() else path


def adopt_result_files(result: str, home: Path, principal: str, since: float) -> str:
    """Move the files that a tool wrote into a shared cache, and return its result with their new paths.

    Args:
        since: when the call began, in seconds since the epoch; older files belong to other calls.
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
    """Return the kind of a file in a shared cache; None for other files."""
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
    """Return the error object of a failed tool: at most `ERROR_LIMIT` characters, no role tags or fences."""
    clean, before = text[: 4 * ERROR_LIMIT], ""
    while clean != before:  # one pass over `<sys<system>tem>` would leave a tag
        before, clean = clean, _CDATA.sub("", _FENCE.sub("", _ROLE_TAG.sub("", clean)))
    return tool_error(f"[TOOL_ERROR] {shorten(clean, ERROR_LIMIT, mark='...')}")


def is_result(value: Any) -> bool:
    """Return whether a handler may return `value`: text, or a multimodal mapping (§4.1)."""
    return isinstance(value, str) or (
        isinstance(value, dict) and value.get("_multimodal") is True and isinstance(value.get("content"), list)
    )


def result_text(tool: str, value: Any) -> str:
    """Return the text of a handler's return value, or the contract error if it has another type."""
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


def call_without_host(entry: ToolEntry, arguments: dict[str, Any], keywords: dict[str, Any]) -> Any:
    """Call a handler in this thread and return its result; errors become the result (§4.4)."""
    try:
        value = entry.handler(arguments, **keywords)
        if entry.is_async and inspect.iscoroutine(value):
            value = asyncio.run(value)
    except Exception as exc:
        logger.warning("tool %s failed: %r", entry.name, exc, exc_info=True)
        return failure(f"Tool execution failed: {type(exc).__name__}: {exc}")
    return value if is_result(value) else result_text(entry.name, value)


def status_of(result: str) -> tuple[ToolStatus, str, str]:
    """Return status, error type and error message of a result (plugin contract §3.2)."""
    if (value := error_object(result)) is not None:
        return "error", str(value.get("error_type") or "tool_error"), str(value["error"])
    return "ok", "", ""


@lazy_dataclass(slots=True, eq=False, repr=False)
class ResultStore:
    """Keeps the full text of results that are too long for the model.

    Attributes:
        home: the agent's home; it has a folder for each principal, made at the first use.
    """

    home: Path

    def fit(
        self,
        call_id: str,
        text: str,
        principal: str,
        limit: float | None = None,
        *,
        on_stored: Callable[[Path], None] = lambda path: None,
    ) -> str:
        """Return `text`, or a preview that names the file of the text if it exceeds `limit` characters.

        Args:
            on_stored: called with that file.
        """
        bound = DEFAULT_LIMIT if limit is None else limit
        if len(text) <= bound:
            return text
        try:
            path = self._keep(call_id, text, principal)
            on_stored(path)
            place = f"Full output saved to: {path}"
        except OSError as exc:
            logger.error("result of call %s: cannot be stored in %s: %s", call_id, self.home, exc)
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
        # ids of calls repeat across conversations, so the name needs more than the id
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        path = directory / f"{_UNSAFE_NAME.sub('_', call_id)[:80] or 'result'}-{digest}.txt"
        write_atomic(path, text, mode=PRIVATE)
        return path
