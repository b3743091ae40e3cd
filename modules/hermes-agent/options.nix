# What is run, from which package, with what on its PATH: the same on NixOS and in a home.
{
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    mkEnableOption
    mkOption
    mkPackageOption
    types
    ;
in
{
  options = {
    enable = mkEnableOption "hermes-agent, an LLM agent that lives on this machine";

    # Built from this tree with the host's own package set: one Python for the agent and its plugins,
    # and never another `pkgs.hermes-agent`, should there be one.
    package =
      mkPackageOption { hermes-agent = pkgs.callPackage ../../nix/package.nix { }; } "hermes-agent"
        {
          pkgsText = "hermes-agent.packages.\${system}";
          extraDescription = "It must have `withPlugins`, as the package of this flake has; its own overrides stay.";
        };

    finalPackage = mkOption {
      type = types.package;
      readOnly = true;
      description = "What the unit runs: `package` with `extraPlugins` and `extraPythonPackages`, checked.";
    };

    environment = mkOption {
      type = types.attrsOf types.str;
      default = { };
      example = {
        HTTPS_PROXY = "http://proxy.lan:3128";
      };
      description = ''
        Variables of the service. They end up in the world-readable Nix store: secrets go to
        {option}`services.hermes-agent.credentials` or {option}`services.hermes-agent.environmentFiles`.
      '';
    };

    extraArgs = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "--verbose" ];
      description = "Further arguments of `hermes gateway run`; the build tries them.";
    };

    extraPackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
      example = lib.literalExpression "[ pkgs.ripgrep ]";
      description = "Programs on the PATH of the agent, its plugins and its terminal tool.";
    };

    restart = mkOption {
      type = types.enum [
        "no"
        "on-success"
        "on-failure"
        "on-abnormal"
        "on-watchdog"
        "on-abort"
        "always"
      ];
      default = "on-failure";
      description = "`Restart=` of the unit. A wrong configuration never restarts it: that mends nothing.";
    };

    restartSec = mkOption {
      type = types.ints.positive;
      default = 5;
      description = "Seconds before a restart.";
    };

    watchdogSec = mkOption {
      type = types.nullOr types.ints.positive;
      default = 60;
      description = "Seconds without a sign of life from the agent's loop after which it is restarted; null: never.";
    };

    parts = mkOption {
      type = types.listOf types.raw;
      internal = true;
      default = [ ];
      description = "What it adds to the host: sets of the host's options.";
    };

    assertions = mkOption {
      type = types.listOf types.unspecified;
      internal = true;
      default = [ ];
      description = "What has to hold.";
    };
    warnings = mkOption {
      type = types.listOf types.str;
      internal = true;
      default = [ ];
      description = "What its owner should know.";
    };
  };
}
