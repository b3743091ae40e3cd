from __future__ import annotations

import subprocess
import sys


def test_importing_the_package_loads_no_sdk_and_no_http_library() -> None:
    code = (
        "import sys, pkgutil, importlib, hermes_agent.models as m\n"
        "for found in pkgutil.iter_modules(m.__path__, 'hermes_agent.models.'):\n"
        "    if not found.name.endswith('.connections'):\n"  # it is imported with the library, at the first request
        "        importlib.import_module(found.name)\n"
        "print(sorted({n.partition('.')[0] for n in sys.modules} & {'openai', 'httpx', 'httpx2', 'pydantic'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
