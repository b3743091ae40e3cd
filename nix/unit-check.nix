# unit :: systemd has nothing to say about it, and its exposure is at most 1.6 of 10.
{ pkgs }:
unit:
pkgs.runCommand "hermes-agent-unit-check" { nativeBuildInputs = [ pkgs.systemd ]; } ''
  unit=${unit}/hermes-agent.service
  # It exits with 0 after a warning.
  said=$(systemd-analyze verify --man=no "$unit" 2>&1) || true
  if [ -n "$said" ]; then echo "$said" >&2; exit 1; fi
  systemd-analyze security --offline=true --no-pager --threshold=16 "$unit" > $out
''
