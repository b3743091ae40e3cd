"""The command of a pytest that a test starts, without plugins of this suite that only cost time there."""

import sys

__all__ = ["NESTED"]

_UNUSED = ("cacheprovider", "hypothesispytest", "xdist", "xdist.looponfail", "anyio")
NESTED = (sys.executable, "-m", "pytest", "-q", *(word for name in _UNUSED for word in ("-p", f"no:{name}")))
