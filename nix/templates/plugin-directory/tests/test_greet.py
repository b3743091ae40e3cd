"""The tool, without the agent: docs/plugins/testing.md has the way with it."""

import importlib.util
import json
from pathlib import Path


def test_it_greets():
    file = Path(__file__).parents[1] / "__init__.py"
    spec = importlib.util.spec_from_file_location("my_plugin", file)
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    assert json.loads(plugin.greet({"name": "Nix"})) == {"text": "Hello, Nix."}
