"""Prices of models by provider, from the data of the package `genai-prices`.

`models/prices/PROVIDER.json` belongs to the release; `make lock` writes it (`requirements/prices.py`). A daemon with a
network fetches newer data once a day into `cache/prices/`, never at its start. A table is read at the first question
for its provider.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.system.files import write_atomic

logger = logging.getLogger(__name__)

URL = "https://raw.githubusercontent.com/pydantic/genai-prices/refs/heads/main/prices/new_data/v2/data.json"
"""Where the package publishes its data."""
RELEASED = Path(__file__).parent / "prices"
SOURCES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("anthropic",),
    "azure-foundry": ("azure", "openai"),
    "bedrock": ("aws",),
    "deepseek": ("deepseek",),
    "fireworks": ("fireworks",),
    "gemini": ("google",),
    "groq": ("groq",),
    "kimi": ("moonshotai",),
    "minimax": ("minimax",),
    "mistral": ("mistral",),
    "openai": ("openai",),
    "openrouter": ("openrouter",),
    "together": ("together",),
    "vertex": ("google", "anthropic"),
    "xai": ("x-ai",),
    "zai": ("zai",),
}
"""Providers, and the providers of the data with the prices that they have, in order."""
FIELDS: Mapping[str, str] = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "output_reasoning_mtok": "reasoning",
}
"""Prices in dollars per million tokens, by their names in the data and in a table."""
MOST_FOUND = 512
"""Number of models with a remembered entry."""
_DATE = re.compile(r"-(?:latest|\d{8}|\d{4}-\d{2}-\d{2}|\d{4})$")


class TokenRates(LazyNamedTuple):
    """Dollars per million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None


class ModelPrices(LazyNamedTuple):
    """Prices of one model at one time."""

    base: TokenRates
    tiers: tuple[tuple[int, TokenRates], ...] = ()
    """Rates for all tokens of a request with more input tokens than the number."""
    context_length: int | None = None


class PriceTables:
    """Finds prices. Safe for threads: a table is replaced as a whole.

    Args:
        folder: of fetched tables; None: only the release's.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self._found: dict[tuple[str, str], dict[str, Any] | None] = {}

    def find(self, provider: str, model: str, now: datetime | None = None) -> ModelPrices | None:
        """Return the prices of a model of a provider, or None if they are unknown."""
        if provider not in SOURCES:
            return None
        key = (provider, model)
        if key not in self._found:
            if len(self._found) >= MOST_FOUND:
                self._found.clear()
            self._found[key] = _find_entry(self._table(provider), model)
        entry = self._found[key]
        return None if entry is None else _prices(entry, now)

    def forget(self) -> None:
        """Read the tables again at the next question: newer ones were fetched."""
        self._tables, self._found = {}, {}

    def _table(self, provider: str) -> list[dict[str, Any]]:
        known = self._tables.get(provider)
        if known is None:
            known = self._tables[provider] = self._read(provider)
        return known

    def _read(self, provider: str) -> list[dict[str, Any]]:
        places = (RELEASED,) if self.folder is None else (self.folder, RELEASED)
        for path in (place / f"{provider}.json" for place in places):
            try:
                models = json.loads(path.read_bytes())["models"]
                if isinstance(models, list) and models:
                    return models
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError) as exc:
                logger.warning("prices: %s cannot be read and is skipped: %s", path, exc)
        return []


def _find_entry(table: Iterable[dict[str, Any]], model: str) -> dict[str, Any] | None:
    name = model.lower().removeprefix("models/")
    for each in dict.fromkeys((name, _DATE.sub("", name))):
        found = next((entry for entry in table if _matches(entry["match"], each)), None)
        if found is not None:
            return found
    return None


def _matches(match: Mapping[str, Any], name: str) -> bool:
    ((kind, value),) = match.items()
    if kind == "or":
        return any(_matches(each, name) for each in value)
    if kind == "and":
        return all(_matches(each, name) for each in value)
    if kind == "regex":
        return re.search(value, name) is not None
    text = str(value).lower()
    return {
        "equals": name == text,
        "starts_with": name.startswith(text),
        "ends_with": name.endswith(text),
        "contains": text in name,
    }.get(kind, False)


def _prices(entry: Mapping[str, Any], now: datetime | None) -> ModelPrices | None:
    """Return the last prices of an entry that hold now."""
    now = (now or datetime.now(UTC)).astimezone(UTC)
    given = next((each for each in reversed(entry["prices"]) if _holds(each, now)), None)
    if given is None or "input" not in given:
        return None
    tiered = [value for value in given.values() if isinstance(value, list) and not _is_hours(value)]
    starts = sorted({start for value in tiered for start, _ in value[1:]})
    base = _rates(given, 0)
    return ModelPrices(base, tuple((start, _rates(given, start)) for start in starts), entry.get("context_length"))


def _is_hours(value: list[Any]) -> bool:
    return isinstance(value[0], str)


def _holds(given: Mapping[str, Any], now: datetime) -> bool:
    if "from" in given and now.date().isoformat() < given["from"]:
        return False
    if "hours" not in given:
        return True
    begin, end = given["hours"]
    time = now.strftime("%H:%M")
    return bool(begin <= time < end if begin <= end else (time >= begin or time < end))


def _rates(given: Mapping[str, Any], start: int) -> TokenRates:
    """Return the rates of the tier that begins at `start`; 0 is the base."""

    def rate(name: str) -> float | None:
        value = given.get(name)
        if not isinstance(value, list):
            return None if value is None else float(value)
        reached = [price for at, price in value[1:] if at <= start]
        return float(reached[-1] if reached and start else value[0])

    cached = (rate("cache_read"), rate("cache_write"), rate("reasoning"))
    return TokenRates(rate("input") or 0.0, rate("output") or 0.0, *cached)


# -- newer data --------------------------------------------------------------------------------------------------------

TIMEOUT_S = 30.0
LONGEST_DATA = 32 * 1024 * 1024
"""Bytes of the published data that are read at most."""


def update_prices(tables: PriceTables, url: str = URL) -> bool:
    """Fetch the published data into the folder of the tables; return whether it came. Blocks, in a worker.

    A failure leaves the tables as they are.
    """
    assert tables.folder is not None
    import httpx  # only a daemon, once a day

    try:
        data = bytearray()
        with httpx.stream("GET", url, timeout=TIMEOUT_S, follow_redirects=True) as answer:
            answer.raise_for_status()
            for piece in answer.iter_bytes():
                data += piece
                if len(data) > LONGEST_DATA:
                    raise ValueError(f"the data has more than {LONGEST_DATA} bytes")
        texts = compile_tables(json.loads(data), f"{url} at {datetime.now(UTC):%Y-%m-%d}")
        tables.folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_atomic(tables.folder / f"{name}.json", text)
    except (httpx.HTTPError, OSError, ValueError) as exc:
        logger.info("prices: newer ones cannot be fetched from %s: %s", url, exc)
        return False
    tables.forget()
    return True


# -- compiling the data ------------------------------------------------------------------------------------------------


def compile_tables(providers: Any, source: str) -> dict[str, str]:
    """Return the text of each table by provider.

    Args:
        providers: the published data: a list of providers, or an object with it.
        source: name and version of the data.

    Raises:
        ValueError: it has another form.
    """
    try:
        given = providers["providers"] if isinstance(providers, Mapping) else providers
        by_id = {each["id"]: each["models"] for each in given}
        today = datetime.now(UTC).date().isoformat()
        found = {}
        for name, sources in SOURCES.items():
            models = [entry for each in sources for model in by_id[each] if (entry := _entry(model, today)) is not None]
            lines = ",\n".join(json.dumps(model, separators=(",", ":")) for model in models)
            found[name] = f'{{"source": {json.dumps(source)},\n"models": [\n{lines}\n]}}\n'
    except (KeyError, TypeError, AttributeError, IndexError) as exc:
        raise ValueError(f"the data of prices has another form: {type(exc).__name__}: {exc}") from exc
    return found


def _entry(model: Mapping[str, Any], today: str) -> dict[str, Any] | None:
    """Return one model, or None if no price of its tokens is known."""
    prices = [
        entry for given in _listed_prices(model.get("prices"), today) if "input" in (entry := _price_entry(given))
    ]
    if not prices:
        return None
    found: dict[str, Any] = {"match": model["match"], "prices": prices}
    if model.get("context_window"):
        found["context_length"] = model["context_window"]
    return found


def _listed_prices(prices: Any, today: str) -> list[Mapping[str, Any]]:
    """Return the prices that hold now or later; an older one is replaced by the next."""
    if not isinstance(prices, list):
        return [{"prices": prices or {}}]
    found: list[Mapping[str, Any]] = []
    for each in prices:
        start = (each.get("constraint") or {}).get("start_date")
        if start is not None and str(start)[:10] <= today:
            found = [{"prices": each["prices"]}]
        else:
            found.append(each)
    return found


def _price_entry(given: Mapping[str, Any]) -> dict[str, Any]:
    constraint, prices = given.get("constraint") or {}, given["prices"]
    entry: dict[str, Any] = {
        ours: _number(prices[name]) for name, ours in FIELDS.items() if prices.get(name) is not None
    }
    if constraint.get("start_date"):
        entry["from"] = str(constraint["start_date"])[:10]
    elif constraint.get("start_time"):
        entry["hours"] = [str(constraint["start_time"])[:5], str(constraint["end_time"])[:5]]
    return entry


def _number(value: Any) -> Any:
    """Return a price, or `[base, [start, price], …]` where longer requests have another price."""
    if isinstance(value, Mapping):
        return [float(value["base"]), *([int(tier["start"]), float(tier["price"])] for tier in value["tiers"])]
    return float(value)
