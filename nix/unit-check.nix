# { units, exposure } -> the exposure of each unit, once systemd has nothing to say about any of them.
#
# units: { "hermes-agent.service" = derivation with that file; … }
# exposure: { "hermes-agent.service" = 2.0; … }: most points of 10 that `systemd-analyze security` may give; null: any.
{ lib, pkgs }:
{
  units,
  exposure ? { },
  option ? "services.hermes-agent",
}:
let
  bounds = lib.filterAttrs (name: bound: bound != null && units ? ${name}) exposure;
  tenths = bound: toString (builtins.floor (bound * 10 + 0.5));
in
pkgs.runCommand "hermes-agent-unit-check" { nativeBuildInputs = [ pkgs.systemd ]; } ''
  mkdir units
  ${lib.concatLines (
    lib.mapAttrsToList (name: unit: "cp ${unit}/${lib.escapeShellArg name} units/") units
  )}
  cd units
  # It exits with 0 after a warning. What it says of a machine that is none (the builder) is not about the units.
  said=$(systemd-analyze verify --man=no ./* 2>&1 | grep -F ${
    lib.concatMapStringsSep " " (name: "-e ${lib.escapeShellArg name}") (lib.attrNames units)
  }) || true
  if [ -n "$said" ]; then
    echo "error: hermes-agent: systemd does not take the unit as it is written:" >&2
    echo "$said" | sed "s|$PWD/||g; s|^|  |" | head -n 6 >&2
    echo "hint: correct the value that ${option} or systemd.services sets." >&2
    exit 1
  fi
  : > $out
  ${lib.concatLines (
    lib.mapAttrsToList (name: bound: ''
      if ! systemd-analyze security --offline=true --no-pager --threshold=${tenths bound} ./${lib.escapeShellArg name} > report 2>&1; then
        echo "error: hermes-agent: ${name} is more exposed than ${builtins.toJSON bound} of 10:" >&2
        grep Overall report | sed 's/^→ /  /' >&2
        # What counts most, by the last column.
        grep '^✗' report | sed 's/ \{2,\}/  /g; s/^✗ \(.*[^ ]\) *  \([0-9.]*\)$/\2  \1/' | sort -rn | head -n 3 | sed 's/^/    /' >&2
        echo "hint: take back what opens it in systemd.services, or raise ${option}.${
          if lib.hasPrefix "hermes-exec" name then "tools." else ""
        }maxExposure." >&2
        exit 1
      fi
      grep Overall report >> $out
    '') bounds
  )}
''
