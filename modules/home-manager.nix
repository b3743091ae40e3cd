# services.hermes-agent in a home: services of the user, from the same options as on NixOS.
{ config, lib, ... }:
let
  inherit (lib)
    attrByPath
    concatMap
    filter
    mkMerge
    ;
  cfg = config.services.hermes-agent;
  instances = import ./hermes-agent/instances.nix { inherit lib; };
  all = instances.all cfg;
  collisions = import ./hermes-agent/collisions.nix { inherit lib; } {
    inherit all;
    apart = false;
  };

  # The options of one instance.
  files = [
    ./hermes-agent/options.nix
    ./hermes-agent/settings.nix
    ./hermes-agent/mcp.nix
    ./hermes-agent/secrets.nix
    ./hermes-agent/plugins.nix
    ./hermes-agent/checks.nix
    ./hermes-agent/documents.nix
    ./hermes-agent/home.nix
    ./hermes-agent/assertions.nix
  ];

  # What all of them say of an option of the home.
  parts =
    path:
    mkMerge (filter (part: part != null) (concatMap (each: map (attrByPath path null) each.parts) all));
in
{
  _class = "homeManager";
  imports = [
    (instances.module {
      inherit files;
      # Without a daemon it still is a home, with a command.
      profileFiles = [ { enable = lib.mkDefault cfg.enable; } ];
      arguments = { pkgs, ... }: { inherit pkgs; };
    })
  ];

  options.programs.hermes-agent.enable = lib.mkEnableOption "the command `hermes` for this user, with the same settings";

  config = {
    assertions = concatMap instances.assertions all ++ collisions.assertions;
    warnings = concatMap (each: each.warnings) all ++ collisions.warnings;

    systemd.user.services = parts [
      "systemd"
      "user"
      "services"
    ];
    home.packages = parts [
      "home"
      "packages"
    ];
    home.sessionVariables = parts [
      "home"
      "sessionVariables"
    ];
    home.activation = parts [
      "home"
      "activation"
    ];
  };
}
