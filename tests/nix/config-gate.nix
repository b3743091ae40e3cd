# The files of tests/data/config/broken through the gate that a host's settings go through, all in one
# derivation and one process: $out/<name>.status and $out/<name>.text for each.
{ lib, pkgs }:
let
  inherit (pkgs.callPackage ../../nix/package.nix { }) gates;
in
pkgs.runCommand "config-gate" { } ''
  mkdir $out
  ${gates.agent.interpreter} -I ${pkgs.writeText "each.py" ''
    import contextlib, pathlib, runpy, sys

    gate, files, out = sys.argv[1:]
    check = runpy.run_path(gate)["main"]
    for file in sorted(pathlib.Path(files).glob("*.yaml")):
        with open(f"{out}/{file.stem}.text", "w") as text, contextlib.redirect_stderr(text):
            status = check(str(file))
        pathlib.Path(out, f"{file.stem}.status").write_text(f"{status}\n")
  ''} ${../../nix/gates/config_check.py} ${../data/config/broken} $out
''
