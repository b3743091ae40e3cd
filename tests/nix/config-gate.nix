# The files of tests/data/config/broken through the gate that a host's settings go through, all in one
# derivation: $out/<name>.status and $out/<name>.text for each.
{ lib, pkgs }:
let
  inherit (pkgs.callPackage ../../nix/package.nix { }) gates;
in
pkgs.runCommand "config-gate" { } ''
  mkdir $out
  for file in ${../data/config/broken}/*.yaml; do
    name=$(basename "$file" .yaml)
    status=0
    ${gates.configCheckCommand "$file"} > "$out/$name.text" 2>&1 || status=$?
    echo "$status" > "$out/$name.status"
  done
''
