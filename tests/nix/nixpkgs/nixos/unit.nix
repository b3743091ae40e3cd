# One of systemd.services as the text of a unit file, with the conventions of NixOS: a list repeats
# the key, true and false are spelled out, null is left out.
{ lib, pkgs }:
service:
let
  show = v: if lib.isBool v then lib.boolToString v else toString v;
  line = key: v:
    if v == null then [ ]
    else if lib.isList v then map (x: "${key}=${show x}") v
    else [ "${key}=${show v}" ];
  section = name: attrs: "[${name}]\n" + lib.concatLines (lib.flatten (lib.mapAttrsToList line attrs));
  words = xs: if xs == [ ] then null else toString xs;

  # As NixOS does: the tools that every unit has, after the unit's own.
  path = service.path ++ [ pkgs.coreutils pkgs.findutils pkgs.gnugrep pkgs.gnused pkgs.systemd ];
  # The stand-in's tools are a few links into the host, hence its directories at the end.
  environment = { PATH = "${lib.makeBinPath path}:/usr/bin:/bin"; } // lib.filterAttrs (_: v: v != null) service.environment;
in
section "Unit" ({
  Description = service.description;
  Documentation = words service.documentation;
  Wants = words service.wants;
  Requires = words service.requires;
  After = words service.after;
  Before = words service.before;
  StartLimitBurst = service.startLimitBurst;
  StartLimitIntervalSec = service.startLimitIntervalSec;
  # One line each; a file of their hashes in NixOS, which is the same to whoever compares them.
  X-Restart-Triggers = words (map toString service.restartTriggers);
  X-Reload-Triggers = words (map toString service.reloadTriggers);
} // service.unitConfig)
# NixOS quotes, and leaves % to systemd.
+ "\n" + section "Service" ({ Environment = lib.mapAttrsToList (n: v: builtins.toJSON "${n}=${toString v}") environment; } // service.serviceConfig)
+ "\n" + section "Install" { WantedBy = service.wantedBy; }
