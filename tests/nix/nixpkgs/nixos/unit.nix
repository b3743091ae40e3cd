# One of systemd.services as the text of a unit file, with the conventions of NixOS: a list repeats
# the key, true and false are spelled out, null is left out.
{ lib, pkgs }:
# { service } or { socket }: an option's value.
{
  service ? null,
  socket ? null,
}:
let
  show = v: if lib.isBool v then lib.boolToString v else toString v;
  line =
    key: v:
    if v == null then
      [ ]
    else if lib.isList v then
      map (x: "${key}=${show x}") v
    else
      [ "${key}=${show v}" ];
  section =
    name: attrs: "[${name}]\n" + lib.concatLines (lib.flatten (lib.mapAttrsToList line attrs));
  words = xs: if xs == [ ] then null else toString xs;

  # As NixOS does: the tools that every unit has, after the unit's own.
  path = service.path ++ [
    pkgs.coreutils
    pkgs.findutils
    pkgs.gnugrep
    pkgs.gnused
    pkgs.systemd
  ];
  # The stand-in's tools are a few links into the host, hence its directories at the end.
  environment = {
    PATH = "${lib.makeBinPath path}:/usr/bin:/bin";
  }
  // lib.filterAttrs (_: v: v != null) service.environment;
  unitOf =
    it:
    section "Unit" (
      {
        Description = it.description;
        Documentation = words it.documentation;
        Wants = words it.wants;
        Requires = words it.requires;
        After = words it.after;
        Before = words it.before;
        StartLimitBurst = it.startLimitBurst;
        StartLimitIntervalSec = it.startLimitIntervalSec;
        # One line each; a file of their hashes in NixOS, which is the same to whoever compares them.
        X-Restart-Triggers = words (map toString it.restartTriggers);
        X-Reload-Triggers = words (map toString it.reloadTriggers);
        X-RestartIfChanged = if it.restartIfChanged then null else false;
      }
      // it.unitConfig
    );
  install = it: "\n" + section "Install" { WantedBy = it.wantedBy; };
in
if socket != null then
  unitOf socket + "\n" + section "Socket" socket.socketConfig + install socket
else
  unitOf service
  # NixOS quotes, and leaves % to systemd.
  + "\n"
  + section "Service" (
    {
      Environment = lib.mapAttrsToList (n: v: builtins.toJSON "${n}=${toString v}") environment;
    }
    // service.serviceConfig
  )
  + install service
