"""Texts in which nothing is to be masked."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def harmless() -> dict[str, str]:
    """Texts of an ordinary day: sources, pages, lock files with hashes, identifiers, an image in base64, listings."""
    noise = random.Random(1)
    folders = ("hermes/hermes_agent/workspace", "hermes/hermes_agent/models", "docs", "nix", "requirements")
    files = [p for f in folders for p in sorted((ROOT / f).rglob("*")) if p.suffix in (".py", ".md", ".nix", ".txt")]
    found = {str(p): p.read_text(encoding="utf-8") for p in [*files, ROOT / "flake.lock"]}
    hashes = [hashlib.sha512(bytes([n])).digest() for n in range(200)]
    found["package-lock.json"] = "\n".join(f'"integrity": "sha512-{base64.b64encode(h).decode()}",' for h in hashes)
    found["log"] = "\n".join(f"commit {h.hex()[:40]}\nindex {h.hex()[:7]}..{h.hex()[8:15]} 100644" for h in hashes)
    found["ids"] = "\n".join(str(uuid.UUID(bytes=noise.randbytes(16))) for _ in range(2_000))
    found["image"] = "data:image/png;base64," + base64.b64encode(noise.randbytes(300_000)).decode()
    found["map"] = base64.b64encode(json.dumps([{"a": n, "b": "x" * (n % 7)} for n in range(5_000)]).encode()).decode()
    found["documentation"] = (ROOT / "tests/data/redact/harmless.txt").read_text(encoding="utf-8")
    found["fingerprint"] = "SHA256:" + base64.b64encode(hashes[0][:32]).decode() + " 4A:AA:BB:" + "0F:" * 16
    return found
