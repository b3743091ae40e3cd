"""Upstream's import names: plugin contract §11, docs/architecture.md "Compat names"."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.compat import import_hook
from hermes_agent.compat.plugin_modules import CATEGORIES
from hermes_agent.host import Host

SERVED = sorted(import_hook.served())
NONE_TOO = "gateway.platforms.webhook.DEFAULT_HOST"
"""A name with the value None: every address."""


def test_every_name_of_the_table_is_there(served: None, host: Host) -> None:
    for name in SERVED:
        module = importlib.import_module(name)
        assert module.__name__ == name and "__all__" in dir(module)
        assert module.__doc__ == import_hook.served()[name].doc
        assert module.__doc__
        assert import_hook.is_served(name)
        for one in import_hook.served()[name].names:
            assert one in dir(module)
            assert getattr(module, one) is not None or f"{name}.{one}" == NONE_TOO

    assert {"hermes_cli", "hermes_cli.config", "hermes_constants", "tools.registry"} <= set(SERVED)


def test_a_module_imports_what_is_asked_of_it_and_nothing_more() -> None:
    code = (
        "import sys; from hermes_agent.compat import import_hook; import_hook.install()\n"
        "import gateway.platforms.base, tools.approval, hermes_cli.plugins, run_agent, agent.auxiliary_client\n"
        "assert not [n for n in sys.modules if n.startswith(('hermes_agent.contracts', 'hermes_agent.agent'))]\n"
        "from gateway.platforms.base import utf16_len\n"
        "print([n for n in sys.modules if n.startswith('hermes_agent.adapters.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("['hermes_agent.adapters.text']\n", "")


def test_what_a_plugin_puts_in_place_of_a_name_stays_and_what_it_takes_away_is_as_before(served: None) -> None:
    from unittest import mock

    import utils

    real = utils.env_int
    with mock.patch("utils.env_bool", "patched"):
        assert utils.env_bool == "patched"
    assert callable(utils.env_bool)
    utils.env_int = len
    assert importlib.import_module("utils").env_int is len
    del utils.env_int
    assert utils.env_int is real
    with pytest.raises(ImportError, match="cannot import name 'absent' from 'utils'"):
        exec("from utils import absent", {})


def test_all_of_a_module_are_its_public_names(served: None) -> None:
    names: dict[str, object] = {}
    exec("from gateway.status import *", names)

    assert set(names) - {"__builtins__"} == {
        "acquire_scoped_lock",
        "get_process_start_time",
        "is_gateway_running",
        "release_scoped_lock",
    }


def test_installing_twice_is_installing_once(served: None) -> None:
    import_hook.install()

    finders = [i for i, f in enumerate(sys.meta_path) if isinstance(f, import_hook.UpstreamFinder)]
    assert len(finders) == 1
    assert sys.meta_path[finders[0] + 1] is importlib.machinery.PathFinder


def test_a_part_of_a_served_package_is_declined_with_its_own_reason(served: None) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("tools.fal_common")

    assert str(caught.value) == (
        "No module named 'tools.fal_common' (hermes-agent does not serve it: it belongs to one vendor's service)"
    )
    with pytest.raises(ImportError):
        exec("from tools import voice_mode", {})


def test_a_declined_name_of_a_served_module_is_told_of_in_the_log(
    served: None, caplog: pytest.LogCaptureFixture
) -> None:
    import_hook._warn_declined.cache_clear()
    for _ in range(2):
        with pytest.raises(ImportError, match="cannot import name 'get_active_env'"):
            exec("from tools.terminal_tool import get_active_env", {})

    [told] = [m for m in caplog.messages if "get_active_env" in m]
    assert "ctx.dispatch_tool('terminal', …) run commands in it" in told


def test_the_error_of_an_import_has_the_reason_and_a_probe_only_says_no(served: None) -> None:
    import hermes_cli.config

    with pytest.raises(ImportError) as caught:
        exec("from hermes_cli.config import migrate_config", {})

    assert str(caught.value).startswith(
        "cannot import name 'migrate_config' from 'hermes_cli.config' (hermes-agent does not serve it: the config has"
    )
    assert not hasattr(hermes_cli.config, "migrate_config")
    with pytest.raises(AttributeError, match="has no attribute 'migrate_config'"):
        hermes_cli.config.migrate_config  # noqa: B018
    with pytest.raises(ImportError, match="the config has one schema"):
        exec("from hermes_cli.config_defaults import ENV_VARS_BY_VERSION", {})


def test_no_declined_name_can_be_had_and_each_reason_is_of_today(served: None) -> None:
    for name, why in import_hook.declined().items():
        module, _, last = name.rpartition(".")
        if name not in SERVED and module in SERVED and import_hook.served()[module].names:
            assert not hasattr(importlib.import_module(module), last), name
        elif name not in SERVED and name.removeprefix("plugins.") not in CATEGORIES:  # a host has these as packages
            with pytest.raises(ModuleNotFoundError, match=re.escape(why)):
                importlib.import_module(name)
        assert not re.search(r"this release|later|not yet", why), name


def test_a_probe_says_no_and_does_not_raise(served: None) -> None:
    assert importlib.util.find_spec("gateway.delivery_ledger") is None
    assert importlib.util.find_spec("tools.voice_mode") is None
    assert importlib.util.find_spec("tools.registry") is not None


def test_a_stray_module_of_that_name_is_never_taken_for_upstream_s(
    served: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "utils.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert not hasattr(importlib.import_module("utils"), "x")


def test_a_plugin_that_takes_a_served_module_away_imports_its_own_of_that_name(
    served: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "providers.py").write_text("own = True\n")
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/__init__.py").write_text("")
    (tmp_path / "agent/search.py").write_text("own = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    taken = {name: sys.modules.pop(name) for name in ("providers", "agent") if name in sys.modules}
    assert sorted(taken) == ["agent", "providers"]
    try:
        assert importlib.import_module("providers").own
        assert importlib.import_module("agent.search").own
    finally:
        for name in ("providers", "agent", "agent.search"):
            sys.modules.pop(name, None)
        sys.modules.update(taken)

    assert callable(importlib.import_module("providers").get_provider_profile)
    assert importlib.import_module("agent.redact").redact_sensitive_text
    del sys.modules["utils"]
    assert importlib.import_module("utils").env_int  # nothing of that name is first on the path


def test_the_top_level_names_are_modules_that_read_the_table_at_their_first_use() -> None:
    code = (
        "import sys, importlib.util; from hermes_agent.compat import import_hook as hook; hook.install()\n"
        "assert hook.RESERVED <= set(sys.modules) and not hook.served.cache_info().currsize\n"
        "assert importlib.util.find_spec('hermes_cli').submodule_search_locations == []\n"
        "packages = {name.split('.')[0] for name in hook.served() if '.' in name}\n"
        "assert packages == hook.PACKAGES, packages\n"
        "try: from utils import absent\n"
        "except ImportError as exc: print('does not serve it' in str(exc))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("True\n", "")


def test_other_names_are_left_to_python(served: None) -> None:
    assert import_hook.UpstreamFinder().find_spec("colorsys", None) is None
    assert import_hook.UpstreamFinder().find_spec("toolshed", None) is None


def test_the_real_distribution_beside_us_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "hermes_constants.py").write_text("real = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        import_hook.install()
        import_hook.install()
        assert not hasattr(importlib.import_module("hermes_constants"), "real")
    finally:
        import_hook.uninstall()

    assert [m.partition(":")[0] for m in caplog.messages] == [
        f"upstream's own `hermes_constants` is installed ({tmp_path}/hermes_constants.py)"
    ]


def test_nothing_that_is_served_is_declined() -> None:
    declined = import_hook.declined()
    names = {f"{module}.{name}" for module in SERVED for name in import_hook.served()[module].names}

    assert not set(declined) & names
    assert all(name.partition(".")[0] in import_hook.RESERVED for name in [*declined, *SERVED])


def test_a_script_runs_with_the_names_served(tmp_path: Path, home: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 5\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside\n"
        "from hermes_cli import __version__\n"
        "from tools.registry import registry\n"
        "assert __name__ == '__main__'\n"
        "print(__version__, beside.VALUE, sys.argv[1:], 'read_file' in registry.get_all_tool_names())\n"
        "sys.exit(4)\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "hermes_agent.compat", str(script), "a", "--b"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout, done.stderr) == (4, "0.19.0 5 ['a', '--b'] True\n", "")


@pytest.mark.parametrize("argv", [[], ["/not/there.py"]])
def test_without_a_script_the_usage_is_shown(argv: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hermes_agent.compat", *argv], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 2
    assert "usage: python -m hermes_agent.compat SCRIPT" in done.stderr


def test_the_installed_package_occupies_none_of_the_names_on_disk() -> None:
    import hermes_agent

    source_root = Path(str(hermes_agent.__file__)).parent.parent

    assert [p.name for p in source_root.iterdir() if p.stem in import_hook.RESERVED] == []
