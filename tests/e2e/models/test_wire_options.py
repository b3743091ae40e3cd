"""Every option of a request in the words of each provider, against expected bodies in files.

`source` of a file is the page of the provider that documents the fields, `compared` the day on which the file was last
compared with that page as a whole, or null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.core.messages import Notice
from hermes_agent.host import Host
from hermes_agent.models.request_options import OPTION_NAMES, make_options
from hermes_agent.policy import NoApprover
from peers.wires import Reply, WireModel

FOLDER = Path(__file__).parents[2] / "data" / "request_options"
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))
OF_EACH_REQUEST = {"model", "messages", "tools", "stream", "stream_options", "input", "instructions", "system"} | {
    *("include", "store", "prompt_cache_key", "cache_control"),
}
"""Fields of a body that are no options."""


@pytest.mark.parametrize("name", FILES)
async def test_a_request_has_the_options_in_the_words_of_the_provider(tmp_path: Path, name: str) -> None:
    given = json.loads((FOLDER / f"{name}.json").read_text())
    replies = [Reply(text, status=400) for text in given.get("refusals", ())] + [Reply()]

    async def main(host: Host) -> list[str]:
        try:
            talk = await host.agent.open(platform="cli", approver=NoApprover("here"), keep=False, history=[])
            events = [event async for event in talk.turn("hi", options=make_options(given["options"]))]
            return [event.text for event in events if isinstance(event, Notice)]
        finally:
            await host.aclose()

    with WireModel(*replies) as model:
        block = {"provider": given["provider"], "base_url": model.url, "default": given["model"]}
        block |= {"api_key": "k-0123456789", "api_mode": given.get("api_mode", "")}
        (tmp_path / "config.yaml").write_text(json.dumps({"model": block, "compression": {"enabled": False}}))
        notices = await main(Host.build(tmp_path))
        body = model.bodies[-1]
    assert {field: value for field, value in body.items() if field not in OF_EACH_REQUEST} == given["body"]
    assert [notice.split(" ", 1)[0] for notice in notices] == given["left_out"]


def test_the_files_name_their_source_and_cover_every_option() -> None:
    covered: set[str] = set()
    for name in FILES:
        given: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
        assert given["source"].startswith("https://") and "compared" in given, name
        covered |= set(given["options"])
    assert set(OPTION_NAMES) <= covered
