"""Data that lies beside the code."""

from pathlib import Path

TABLE = (Path(__file__).parent / "data" / "table.txt").read_text(encoding="utf-8").split()
