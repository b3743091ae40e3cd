# Who runs it, from which package, with what on its PATH.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkEnableOption mkOption mkPackageOption types;
  cfg = config.services.hermes-agent;
in
{
  options.services.hermes-agent = {
    enable = mkEnableOption "hermes-agent, an LLM agent that lives on this machine";

    # Built from this tree with the host's own package set: one Python for the agent and its plugins,
    # and never another `pkgs.hermes-agent`, should there be one.
    package = mkPackageOption { hermes-agent = pkgs.callPackage ../../nix/package.nix { }; } "hermes-agent" {
      pkgsText = "hermes-agent.packages.\${system}";
      extraDescription = "It must have `withPlugins`, as the package of this flake has.";
    };

    finalPackage = mkOption {
      type = types.package;
      readOnly = true;
      description = "What the unit runs: `package` with `extraPlugins` and `extraPythonPackages`, checked.";
    };

    user = mkOption {
      type = types.str;
      default = "hermes";
      description = "The user that it runs as. The default one is created; another has to exist.";
    };

    group = mkOption {
      type = types.str;
      default = "hermes";
      description = "The group that it runs as. The default one is created; another has to exist.";
    };

    environment = mkOption {
      type = types.attrsOf types.str;
      default = { };
      example = { HTTPS_PROXY = "http://proxy.lan:3128"; };
      description = ''
        Variables of the service. They end up in the world-readable Nix store: secrets go to
        {option}`services.hermes-agent.credentials` or {option}`services.hermes-agent.environmentFiles`.
      '';
    };

    extraPackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
      example = lib.literalExpression "[ pkgs.ripgrep ]";
      description = "Programs on the PATH of the agent, its plugins and its terminal tool.";
    };

    watchdogSec = mkOption {
      type = types.nullOr types.ints.positive;
      default = 60;
      description = "Seconds without a sign of life from the agent's loop after which it is restarted; null: never.";
    };
  };

  config = lib.mkIf cfg.enable {
    users.users = lib.mkIf (cfg.user == "hermes") {
      hermes = { isSystemUser = true; inherit (cfg) group; home = cfg.stateDir; };
    };
    users.groups = lib.mkIf (cfg.group == "hermes") { hermes = { }; };
  };
}
