# services.hermes-agent in a home: services of the user, from the same options as on NixOS.
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
    mkIf
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

  # `hermes` in the home of another instance.
  command =
    each:
    pkgs.writeShellScriptBin each.instance.command ''
      export HERMES_HOME=${lib.escapeShellArg each.home} HERMES_DECLARED_CONFIG=${each.declaredFile}
      exec ${each.finalPackage}/bin/hermes "$@"
    '';
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

    systemd.user.services = mkMerge (
      filter (part: part != null) (
        concatMap (each: map (attrByPath [ "systemd" "user" "services" ] null) each.parts) all
      )
    );

    home.packages = mkIf config.programs.hermes-agent.enable (
      lib.optional cfg.enable cfg.finalPackage ++ map command (filter (each: !each.instance.plain) all)
    );
    home.sessionVariables = mkIf (cfg.enable && config.programs.hermes-agent.enable) {
      HERMES_HOME = cfg.hermesHome;
      HERMES_DECLARED_CONFIG = "${cfg.declaredFile}";
    };
  };
}
