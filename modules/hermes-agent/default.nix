# services.hermes-agent on NixOS: agents as hardened systemd services whose plugins, Python packages and settings are
# checked while the system is built.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    attrByPath
    concatMap
    filter
    mkMerge
    ;
  cfg = config.services.hermes-agent;
  instances = import ./instances.nix { inherit lib; };
  all = instances.all cfg;
  collisions = import ./collisions.nix { inherit lib; } { inherit all; };

  # The options of one instance.
  files = [
    ./options.nix
    ./users.nix
    ./settings.nix
    ./mcp.nix
    ./secrets.nix
    ./plugins.nix
    ./checks.nix
    ./documents.nix
    ./state.nix
    ./service.nix
    ./hardening.nix
    ./sandbox.nix
    ./isolation.nix
    ./local-model.nix
    ./assertions.nix
  ];
  # What all of them say of an option of the host.
  parts =
    path:
    mkMerge (filter (part: part != null) (concatMap (each: map (attrByPath path null) each.parts) all));
in
{
  _class = "nixos";
  imports = [
    (instances.module {
      inherit files;
      profileFiles = [ ./profile.nix ];
      arguments = { pkgs, utils }: { inherit pkgs utils; };
    })
  ];

  config = {
    assertions = concatMap instances.assertions all ++ collisions.assertions;
    warnings =
      concatMap (each: each.warnings) all
      ++ collisions.warnings
      ++ lib.mapAttrsToList (
        name: _:
        "services.hermes-agent.profiles.${name}: `gateway.enable` is not set, so that it is no agent; set it, or drop the profile."
      ) (lib.filterAttrs (_: each: !each.gateway.enable) cfg.profiles);
    system.checks = parts [
      "system"
      "checks"
    ];
    system.activationScripts = parts [
      "system"
      "activationScripts"
    ];
    systemd.services = parts [
      "systemd"
      "services"
    ];
    systemd.sockets = parts [
      "systemd"
      "sockets"
    ];
    systemd.tmpfiles.settings = parts [
      "systemd"
      "tmpfiles"
      "settings"
    ];
    users.users = parts [
      "users"
      "users"
    ];
    users.groups = parts [
      "users"
      "groups"
    ];
    environment.etc = parts [
      "environment"
      "etc"
    ];
    environment.systemPackages = import ./commands.nix { inherit lib pkgs; } {
      inherit all;
      environmentOf = each: config.systemd.services.${each.instance.unit}.environment;
    };
  };
}
