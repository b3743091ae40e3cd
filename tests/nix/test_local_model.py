"""A host without any key answers: llama.cpp's server with a file of weights, in the unit that is for it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from local_model import PINS, installed_weights, weights_path
from nix.booting import container

pytestmark = [
    pytest.mark.nix,
    pytest.mark.service,
    pytest.mark.model,
    pytest.mark.xdist_group("systemd"),
    pytest.mark.timeout(600),
]

SCRIPT = """
set -eu
for _ in $(seq 900); do curl -fs http://127.0.0.1:8641/health > /dev/null && break; sleep 0.2; done
systemctl start hermes-agent
hermes-service -z 'Say hello.' > /tmp/answer
test -s /tmp/answer
systemctl show -P User hermes-local-model
curl -fs http://127.0.0.1:8641/v1/models | grep -o '"id":"[^"]*"'
"""


@pytest.fixture
def weights() -> Path:
    if not os.environ.get("HERMES_NIX_FULL"):
        pytest.skip("run by `make test-nix` (HERMES_NIX_FULL=1)")
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the embedded model's runtime is not installed: make .venv/.local")
    # The small one where somebody fetched it (`hermes model pull smollm2-135m`), else what `make run` brings.
    found = [w for w in (PINS["smollm2-135m"], *PINS.values()) if w in installed_weights()]
    if not found:
        pytest.skip("no weights are there: hermes model pull")
    return weights_path(found[0])


def test_a_host_without_a_key_answers_with_its_own_model(nix, weights: Path) -> None:
    booted = container(nix, "localModel", enable=["hermes-local-model.service", "hermes-agent.service"])
    booted.binds[weights] = "/srv/model.gguf"
    outcome = booted.run(SCRIPT, timeout_s=500).succeeded()
    assert outcome.stdout.split() == ["hermes-local-model", '"id":"local-model"']
    said = [e["MESSAGE"] for e in outcome.entries(_SYSTEMD_UNIT="hermes-local-model.service")]
    assert any("listening on http://127.0.0.1:8641" in line for line in said)
