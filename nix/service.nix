# The daemon as a modular service, for NixOS 25.11 and other service managers; the module in ../modules does more.
#
#   system.services.agent = {
#     imports = [ pkgs.hermes-agent.services.default ];
#     hermes-agent = {
#       home = "/var/lib/agent";
#       settings.model = { provider = "custom"; default = "x"; base_url = "http://127.0.0.1:8643/v1"; };
#     };
#   };
# What is given before is of the package: a service may be of another nixpkgs than the host.
{ writeText }:
{
  lib,
  config,
  options,
  ...
}:
let
  cfg = config.hermes-agent;
  settings = writeText "hermes-agent-settings.json" (builtins.toJSON cfg.settings);
in
{
  _class = "service";

  options.hermes-agent = {
    package = lib.mkOption {
      type = lib.types.package;
      description = "The agent. Its `withPlugins` adds plugins.";
    };

    home = lib.mkOption {
      type = lib.types.str;
      example = "/var/lib/agent";
      description = "`HERMES_HOME`: where sessions, the changed part of the config and the keys of the daemon are.";
    };

    settings = lib.mkOption {
      type = lib.types.attrsOf lib.types.anything;
      default = { };
      example = {
        model.provider = "openrouter";
      };
      description = "The config. It stands in the world-readable Nix store: secrets go to the home, or to credentials.";
    };

    extraArgs = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ ];
      example = [ "--verbose" ];
      description = "Further arguments of `hermes gateway run`.";
    };
  };

  config = {
    process.argv = [
      (lib.getExe' cfg.package "hermes")
      "gateway"
      "run"
    ]
    ++ cfg.extraArgs;
  }
  # Where the service manager is systemd.
  // lib.optionalAttrs (options ? systemd) {
    systemd.service = {
      description = "hermes-agent";
      after = [ "network-online.target" ];
      wants = [ "network-online.target" ];
      wantedBy = [ "multi-user.target" ];
      environment = {
        HERMES_HOME = cfg.home;
        HERMES_DECLARED_CONFIG = "${settings}";
      };
      serviceConfig = {
        Type = "notify";
        Restart = "on-failure";
        # 78: the configuration is wrong; 75: another daemon has this home; 2: the command line is. None mends itself.
        RestartPreventExitStatus = "2 75 78";
        WatchdogSec = 60;
        # SIGTERM to the daemon alone: it drains, and ends its own children.
        KillMode = "mixed";
        TimeoutStopSec = 30;
        StateDirectory = lib.mkIf (lib.hasPrefix "/var/lib/" cfg.home) (
          lib.removePrefix "/var/lib/" cfg.home
        );
        DynamicUser = true;
        NoNewPrivileges = true;
        ProtectSystem = "strict";
        ProtectHome = true;
        PrivateTmp = true;
        PrivateDevices = true;
        UMask = "0077";
      };
    };
  };
}
