# What NixOS' modular services would run: the service of the package, with the options that their base declares.
#
# base: nixpkgs' `lib/services/lib.nix`, of which the part for any service manager is taken instead.
{
  lib,
  pkgs,
  hermes-agent,
  base ? null,
}:
let
  inherit (lib) mkOption types;
  portable = {
    options.process.argv = mkOption { type = types.listOf types.str; };
  };
  systemd = {
    options.systemd.service = mkOption {
      type = types.attrsOf types.anything;
      default = { };
    };
  };
  agent = {
    imports = [ hermes-agent.services.default ];
    hermes-agent = {
      home = "/var/lib/agent";
      settings.model.default = "test/model";
      extraArgs = [ "--verbose" ];
    };
  };
  evaluated =
    modules:
    if base == null then
      (lib.evalModules {
        class = "service";
        modules = [
          portable
          agent
        ]
        ++ modules;
      }).config
    else
      (lib.evalModules {
        modules = [
          {
            options.agent = mkOption {
              type =
                ((import base { inherit lib; }).configure {
                  serviceManagerPkgs = pkgs;
                  extraRootModules = modules;
                }).serviceSubmodule;
            };
            config = { inherit agent; };
          }
        ];
      }).config.agent;
  plain = evaluated [ ];
  full = evaluated [ systemd ];
in
pkgs.writeText "modular-service.json" (
  builtins.toJSON {
    inherit (full.process) argv;
    unit = full.systemd.service;
    withoutSystemd = plain.process.argv;
  }
)
