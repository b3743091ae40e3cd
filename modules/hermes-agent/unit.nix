# What the units of NixOS and of a home have in common: { path, environment, serviceConfig }.
{ cfg, lib, pkgs }:
let
  inherit (lib) mkDefault mkIf;
  drainSeconds = if cfg.settings.server.drain_timeout_s != null then cfg.settings.server.drain_timeout_s else 20;

  # As an argument of ExecStart=: quoted, with systemd's own signs doubled.
  argument = text: lib.replaceStrings [ "%" "$" ] [ "%%" "$$" ] (builtins.toJSON text);
in
{
  path = [ cfg.finalPackage ] ++ import ./path.nix { inherit pkgs; } ++ cfg.extraPackages;

  # systemd expands % in the values of Environment=.
  environment = lib.mapAttrs (_: lib.replaceStrings [ "%" ] [ "%%" ]) cfg.environment // {
    HERMES_HOME = cfg.home;
  };

  serviceConfig = {
    Type = "notify";
    NotifyAccess = mkDefault "main";
    ExecStartPre = cfg.installFiles ++ cfg.seedAuth;
    ExecStart = lib.concatStringsSep " " ([ "${cfg.finalPackage}/bin/hermes gateway run" ] ++ map argument cfg.extraArgs);
    ExecReload = mkDefault "${pkgs.coreutils}/bin/kill -HUP $MAINPID";
    LoadCredential = cfg.loadCredential;
    WorkingDirectory = cfg.workingDirectory;

    Restart = mkDefault cfg.restart;
    RestartSec = mkDefault cfg.restartSec;
    # 78: the configuration is wrong; 75: another daemon has this home; 2: the command line is. None mends itself.
    RestartPreventExitStatus = "2 75 78";
    WatchdogSec = mkIf (cfg.watchdogSec != null) (mkDefault cfg.watchdogSec);
    TimeoutStartSec = mkDefault 60;
    TimeoutStopSec = mkDefault (drainSeconds + 10);
    # SIGTERM to the daemon alone: it drains, and ends its own children.
    KillMode = mkDefault "mixed";
    # A tool that runs out of memory does not end the agent.
    OOMPolicy = mkDefault "continue";
  };
}
