"""Write the price tables of `models/prices/` from the package `genai-prices`, which `make lock` puts beside this.

The program does not depend on the package at run time.
"""

from __future__ import annotations

import dataclasses
import sys
from datetime import date, time
from decimal import Decimal
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from genai_prices.data import providers

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "hermes"))

from hermes_agent.models.price_tables import RELEASED, compile_tables  # noqa: E402 - needs the path


def plain(value: Any) -> Any:
    """Return an object of the package in the form of its published data."""
    if dataclasses.is_dataclass(value):
        return {field.name.rstrip("_"): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "__dict__"):
        return {name.rstrip("_"): plain(each) for name, each in vars(value).items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date | time) else value


def model(value: Any) -> dict[str, Any]:
    return {name: plain(getattr(value, name)) for name in ("match", "prices", "context_window")}


package = distribution("genai-prices")
RELEASED.mkdir(exist_ok=True)
data = [{"id": each.id, "models": [model(one) for one in each.models]} for each in providers]
for name, text in compile_tables(data, f"genai-prices {package.version}, MIT, see LICENSE.txt").items():
    (RELEASED / f"{name}.json").write_text(text, encoding="utf-8")
terms = next(file for file in package.files or () if file.name == "LICENSE")
(RELEASED / "LICENSE.txt").write_text(Path(str(terms.locate())).read_text(encoding="utf-8"), encoding="utf-8")
