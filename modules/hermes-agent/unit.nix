# What the units of NixOS and of a home have in common: { path, environment, fixed, defaults }, the last two for
# `serviceConfig`; a user overrides those of `defaults`.
#
# escape: a list of arguments -> the value of ExecStart=, as `utils.escapeSystemdExecArgs`.
{
  cfg,
  derived,
  lib,
  pkgs,
  escape,
}:
let
  drainSeconds =
    if cfg.settings.server.drain_timeout_s != null then cfg.settings.server.drain_timeout_s else 20;
in
{
  path = [ cfg.finalPackage ] ++ import ./path.nix { inherit pkgs; } ++ cfg.extraPackages;

  # systemd expands % in the values of Environment=.
  environment = lib.mapAttrs (_: lib.replaceStrings [ "%" ] [ "%%" ]) cfg.environment // {
    HERMES_HOME = derived.home;
  };

  fixed = {
    Type = "notify";
    ExecStartPre = derived.installFiles ++ derived.seedAuth;
    ExecStart = escape (
      [
        (lib.getExe' cfg.finalPackage "hermes")
        "gateway"
        "run"
      ]
      ++ cfg.extraArgs
    );
    LoadCredential = derived.loadCredential;
    # In a home the daemon has a directory of its own below it, which it makes.
    WorkingDirectory = if cfg.workingDirectory == null then "~" else cfg.workingDirectory;
    # 78: the configuration is wrong; 75: another daemon has this home; 2: the command line is. None mends itself.
    RestartPreventExitStatus = "2 75 78";
  };

  defaults = {
    NotifyAccess = "main";
    # The listening sockets stay with systemd across a restart: who connects meanwhile waits instead of being refused.
    FileDescriptorStoreMax = 8;
    ExecReload = "${pkgs.coreutils}/bin/kill -HUP $MAINPID";
    Restart = cfg.restart;
    RestartSec = cfg.restartSec;
    TimeoutStartSec = 60;
    TimeoutStopSec = drainSeconds + 10;
    # SIGTERM to the daemon alone: it drains, and ends its own children.
    KillMode = "mixed";
    # A tool that runs out of memory does not end the agent.
    OOMPolicy = "continue";
    # The daemon raises its limit to the second number; connections take at most half (`server.max_connections`).
    LimitNOFILE = "1024:65536";
  }
  // lib.optionalAttrs (cfg.watchdogSec != null) { WatchdogSec = cfg.watchdogSec; };
}
