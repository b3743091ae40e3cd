"""Run the gate of the start for many hosts: starts.py GATE HOSTS.json OUT."""

import contextlib
import json
import os
import runpy
import sys
from pathlib import Path

import hermes_agent.app.start  # noqa: F401 - each start is a child, which finds the modules loaded
from hermes_agent.app.declared import check_declared, read_declaration


def main(gate_file: str, hosts: str, out: str) -> None:
    gate = runpy.run_path(gate_file)
    work = Path(os.environ["TMPDIR"])
    surrounding = dict(os.environ)
    for host in json.loads(Path(hosts).read_text(encoding="utf-8")):
        name, spec = host["name"], host["spec"]
        service = work / "service.json"
        service.write_text(json.dumps(spec["service"]), encoding="utf-8")
        os.environ.clear()
        os.environ.update(surrounding | {"PATH": spec["path"], **spec["environment"]})
        findings = check_declared(read_declaration(Path(spec["file"]), (), str(service)))
        with Path(out, f"{name}.text").open("w", encoding="utf-8") as text, contextlib.redirect_stderr(text):
            status = gate["report"]([each._asdict() for each in findings], spec, str(work / "warnings"))
        Path(out, f"{name}.status").write_text(f"{status}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
