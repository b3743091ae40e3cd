"""Ask a server for the names of its models. Source: plugin contract §8.1, `fetch_models`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

__all__ = ["fetch_model_entries", "fetch_model_ids"]

logger = logging.getLogger(__name__)

LONGEST_LIST = 8 * 1024 * 1024
"""Bytes of a list that are read."""


def fetch_model_ids(url: str, headers: Mapping[str, str], timeout_s: float) -> list[str] | None:
    """Return the ids in `data[].id`, or in a bare list; None after any failure, which is in the log at DEBUG level."""
    entries = fetch_model_entries(url, headers, timeout_s)
    return None if entries is None else [entry["id"] for entry in entries]


def fetch_model_entries(url: str, headers: Mapping[str, str], timeout_s: float) -> list[dict[str, Any]] | None:
    """Return the entries of such a list, each with its `id`; None after any failure."""
    if not url.startswith(("http://", "https://")):
        return None
    import urllib.error  # 3 MiB, which a daemon that asks no server for its models does without
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        """Follows no redirection: the key would go along to whoever is named there."""

        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            return None

    try:
        request = urllib.request.Request(url, headers={"Accept": "application/json", **headers})
        with urllib.request.build_opener(Stay).open(request, timeout=timeout_s) as answer:
            value = json.loads(answer.read(LONGEST_LIST))
    except (OSError, ValueError, urllib.error.URLError) as exc:  # the key is in neither text
        logger.debug("no list of models from %s: %s", url, exc)
        return None
    entries = value.get("data") if isinstance(value, dict) else value
    if not isinstance(entries, list):
        return None
    found = [entry if isinstance(entry, dict) else {"id": entry} for entry in entries]
    return [entry for entry in found if isinstance(entry.get("id"), str) and entry["id"]]
