"""Prices of models: the tables of the release, and newer ones that are fetched over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hermes_agent.models import price_tables
from hermes_agent.models.model_catalog import ModelInfo
from hermes_agent.models.openai_format import parse_usage
from hermes_agent.models.price_tables import SOURCES, PriceTables
from peers.threaded import Threaded


class Published(Threaded):
    """A server with the data of prices."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._data = data

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/data.json", self._get)

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._data)


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("anthropic", "claude-sonnet-4-5"),
        ("openai", "gpt-5.1"),
        ("gemini", "gemini-2.5-pro"),
        ("xai", "grok-4"),
        ("mistral", "mistral-large-latest"),
        ("groq", "openai/gpt-oss-120b"),
        ("deepseek", "deepseek-chat"),
    ],
)
def test_the_tables_have_a_price_for_models_of_each_kind(provider: str, model: str) -> None:
    prices = PriceTables().find(provider, model)
    assert prices is not None and 0 < prices.base.input <= prices.base.output


def test_every_table_is_read_whole_and_its_terms_are_beside_it() -> None:
    tables = PriceTables()
    for provider in SOURCES:
        for entry in tables._table(provider):
            prices = price_tables._prices(entry, datetime(2026, 12, 1, 12, tzinfo=UTC))
            assert prices is None or (prices.base.input >= 0 and all(start > 0 for start, _ in prices.tiers)), entry
    assert "MIT" in (price_tables.RELEASED / "LICENSE.txt").read_text()


DATA = [
    {
        "id": provider,
        "models": [
            {
                "match": {"or": [{"starts_with": "night"}, {"and": [{"contains": "late"}, {"ends_with": "-x"}]}]},
                "context_window": 9000,
                "prices": [
                    {"constraint": {"start_date": "2020-01-01"}, "prices": {"input_mtok": 9, "output_mtok": 9}},
                    {"prices": {"input_mtok": {"base": 2, "tiers": [{"start": 100, "price": 4}]}, "output_mtok": "8"}},
                    {
                        "constraint": {"start_time": "22:00:00Z", "end_time": "06:00:00Z"},
                        "prices": {"input_mtok": 1, "output_mtok": 3, "output_reasoning_mtok": 5},
                    },
                ],
            }
        ],
    }
    for provider in {each for sources in SOURCES.values() for each in sources}
]
"""The form in which the package publishes its data."""


def test_newer_prices_are_fetched_and_hold_by_hour_and_length(tmp_path: Path) -> None:
    tables = PriceTables(tmp_path / "prices")
    assert tables.find("openai", "night-1") is None
    with Published(DATA) as server:
        assert price_tables.update_prices(tables, f"http://{server.address}/data.json")
    day, night = (tables.find("openai", "night-1", datetime(2026, 12, 1, h, tzinfo=UTC)) for h in (12, 23))
    assert day is not None and night is not None and tables.find("openai", "later-x") is not None
    assert (day.base.input, day.tiers[0], day.context_length) == (2.0, (100, day.tiers[0][1]), 9000)
    assert (day.tiers[0][1].input, night.base.output, night.base.reasoning) == (4.0, 3.0, 5.0)
    with Published({"broken": True}) as server:
        assert not price_tables.update_prices(tables, f"http://{server.address}/data.json")
        assert not price_tables.update_prices(tables, f"http://{server.address}/missing")
    assert tables.find("openai", "night-1") is not None
    (tmp_path / "prices" / "xai.json").write_text("{")
    assert PriceTables(tmp_path / "prices").find("xai", "grok-4") is not None  # the release's


def test_tokens_of_reasoning_are_counted_also_where_they_are_no_output() -> None:
    inside = {"prompt_tokens": 10, "completion_tokens": 30, "total_tokens": 40}
    beside = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 40}
    details = {"completion_tokens_details": {"reasoning_tokens": 25}}
    info = ModelInfo("m", input_price=1.0, output_price=10.0)
    for usage in (inside, beside):
        read = parse_usage({**usage, **details})
        assert (read.output_tokens, info.cost_usd(read)) == (30, 10 + 300)
        assert info._replace(reasoning_price=2.0).cost_usd(read) == 10 + 5 * 10 + 25 * 2
