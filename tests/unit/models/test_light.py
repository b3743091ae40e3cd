from __future__ import annotations

import subprocess
import sys


def test_importing_the_package_loads_no_sdk_and_no_http_library() -> None:
    code = (
        "import sys, pkgutil, importlib, hermes_agent.models as m\n"
        "for found in pkgutil.iter_modules(m.__path__, 'hermes_agent.models.'):\n"
        "    importlib.import_module(found.name)\n"
        "unwanted = {'aiohttp', 'openai', 'httpx', 'httpx2', 'pydantic'}\n"
        "print(sorted({n.partition('.')[0] for n in sys.modules} & unwanted))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
