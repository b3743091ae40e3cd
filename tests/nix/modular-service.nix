# What NixOS' modular services would run: the service of the package, with the options that their base declares.
{
  lib,
  pkgs,
  hermes-agent,
}:
let
  inherit (lib) mkOption types;
  base = {
    options.process.argv = mkOption { type = types.listOf types.str; };
  };
  systemd = {
    options.systemd.service = mkOption {
      type = types.attrsOf types.anything;
      default = { };
    };
  };
  evaluated =
    bases:
    (lib.evalModules {
      class = "service";
      modules = bases ++ [
        hermes-agent.services.default
        {
          hermes-agent = {
            home = "/var/lib/agent";
            settings.model.default = "test/model";
            extraArgs = [ "--verbose" ];
          };
        }
      ];
    }).config;
  plain = evaluated [ base ];
  full = evaluated [
    base
    systemd
  ];
in
pkgs.writeText "modular-service.json" (
  builtins.toJSON {
    inherit (full.process) argv;
    unit = full.systemd.service;
    withoutSystemd = plain.process.argv;
  }
)
