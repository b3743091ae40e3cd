# The unit: it is started when it answers, restarted when it hangs, and left alone when it cannot work.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkDefault mkIf;
  cfg = config.services.hermes-agent;
  drainSeconds = if cfg.settings.server.drain_timeout_s != null then cfg.settings.server.drain_timeout_s else 20;
in
{
  config.systemd.services.hermes-agent = mkIf cfg.enable {
    description = "Hermes agent";
    wantedBy = [ "multi-user.target" ];
    after = [ "network.target" ];
    startLimitBurst = mkDefault 5;
    startLimitIntervalSec = mkDefault 300;
    restartTriggers = [ cfg.declaredConfig ];

    path = [ cfg.finalPackage ] ++ import ./path.nix { inherit pkgs; } ++ cfg.extraPackages;
    # NixOS leaves % to systemd, which would expand it.
    environment = lib.mapAttrs (_: lib.replaceStrings [ "%" ] [ "%%" ]) cfg.environment // {
      HOME = cfg.stateDir;
      HERMES_HOME = "${cfg.stateDir}/.hermes";
      HERMES_DECLARED_CONFIG = cfg.declaredConfig;
    };

    serviceConfig = {
      Type = "notify";
      NotifyAccess = mkDefault "main";
      ExecStart = "${cfg.finalPackage}/bin/hermes gateway run";
      User = cfg.user;
      Group = cfg.group;

      Restart = mkDefault "on-failure";
      RestartSec = mkDefault 5;
      # 78: the configuration is wrong; 75: another daemon has this home. Neither mends itself.
      RestartPreventExitStatus = "75 78";
      WatchdogSec = mkIf (cfg.watchdogSec != null) (mkDefault cfg.watchdogSec);
      TimeoutStartSec = mkDefault 60;
      TimeoutStopSec = mkDefault (drainSeconds + 10);
      # SIGTERM to the daemon alone: it drains, and ends its own children.
      KillMode = mkDefault "mixed";
      # A tool that runs out of memory does not end the agent.
      OOMPolicy = mkDefault "continue";
    };
  };
}
