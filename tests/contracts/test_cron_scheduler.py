"""Cron schedulers (docs/plugins/kinds/cron_scheduler.md): the suite, and who is selected."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.contracts.cron_scheduler import CronScheduler, choose_cron_scheduler
from hermes_agent.host import Host

EXAMPLES = Path(__file__).parents[1] / "plugins" / "examples"


class Waiting(CronScheduler):
    """Does nothing until it is stopped; inherits what it can."""

    name = "waiting"
    there = True

    def is_available(self) -> bool:
        return self.there

    def start(self, stop_event: threading.Event, *, adapters: Any = None, loop: Any = None, interval: int = 60) -> None:
        stop_event.wait()


@pytest.fixture(params=["inherits what it can", "example plugin"])
def scheduler(request: pytest.FixtureRequest, example: Callable[[str], Any]) -> Any:
    """Every implementation."""
    return Waiting() if request.param == "inherits what it can" else example("cron_scheduler")


def test_it_says_who_it_is(scheduler: Any) -> None:
    assert isinstance(scheduler.name, str) and scheduler.name
    assert scheduler.is_available() in (True, False)


def test_it_works_until_it_is_stopped(scheduler: Any) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=scheduler.start, args=(stop,), kwargs={"interval": 3600})
    thread.start()
    assert thread.is_alive()

    stop.set()
    thread.join(30)

    assert not thread.is_alive()


def test_the_rest_may_be_called_at_any_time(scheduler: Any) -> None:
    assert isinstance(scheduler.recover_interrupted(), int)
    assert scheduler.fire_due("job-1", adapters={}, loop=None) in (True, False)
    scheduler.on_jobs_changed()
    scheduler.reconcile()
    scheduler.stop()


def test_the_config_selects() -> None:
    made = Waiting()
    there = {"waiting": made}
    assert choose_cron_scheduler(there, {"cron": {"provider": "waiting"}}) == (made, "cron.provider names it")
    assert choose_cron_scheduler(there, {}) == (None, "cron.provider is not set: the built-in scheduler")
    assert choose_cron_scheduler(there, {"cron": {"provider": "gone"}})[1].startswith("cron.provider='gone' is set but")
    made.there = False
    assert choose_cron_scheduler(there, {"cron": {"provider": "waiting"}}) == (
        None,
        "cron.provider names `waiting`, which is not available. The built-in scheduler is used.",
    )


@pytest.mark.parametrize("place", ["clock", "cron_providers/clock"])
@pytest.mark.parametrize(("provider", "loaded"), [("clock", True), ("another", False), ("", False)])
def test_the_plugin_that_the_config_names_is_loaded_wherever_it_lies(
    home: Path, served: None, place: str, provider: str, loaded: bool
) -> None:
    shutil.copytree(EXAMPLES / "cron_scheduler", home / "plugins" / place)
    (home / "config.yaml").write_text(f"cron:\n  provider: '{provider}'\n")
    host = Host.build(home)
    host.plugins.discover_and_load()
    host.bridge.close()

    assert [r.enabled for r in host.plugins.records] == [loaded]
    assert host.providers["cron_scheduler"].names() == (["example-clock"] if loaded else [])


def test_the_upstream_name_is_this(served: None) -> None:
    from cron.scheduler_provider import CronScheduler as upstream

    assert upstream is CronScheduler
