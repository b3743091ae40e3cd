"""Refuse declared settings that the agent would not take: config_check.py FILE [OPTION].

The agent's own check reads the file, as `hermes config check` does; what it has against it is said in the words of the
option. A key that it does not know is kept for plugins, unless it is near one of the agent, or in a section of it.
"""

import sys
from pathlib import Path

from hermes_agent.app.manifest_cache import declared_schema
from hermes_agent.config.check import check_file
from hermes_agent.core.errors import UserError

MODULE = "services.hermes-agent"


def main(file: str, module: str = MODULE) -> int:
    option = f"{module}.settings"
    try:
        problems = [
            f["message"]
            for f in check_file(Path(file), label=option, schema=declared_schema(Path(file).parent)).as_json()[
                "findings"
            ]
            if f["level"] == "error"
        ]
    except UserError as error:
        print(f"error: hermes-agent: `config check` refused {file}: {error}", file=sys.stderr)
        return 1
    for problem in problems:
        print(f"error: hermes-agent: {option}: {problem}", file=sys.stderr)
    if problems:
        print("hint: docs/reference/config.md has every key with its type and default.", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
