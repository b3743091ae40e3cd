# The daemon holds keys and runs what a model asks for, so it gets what it needs and nothing else.
# Every key is a default: `systemd.services.hermes-agent.serviceConfig.PrivateDevices = false;` takes one back.
{
  config,
  instance,
  lib,
  ...
}:
let
  cfg = config;
  # MCP servers are children of the daemon. What compiles while it runs needs writable code pages.
  compiles =
    server:
    lib.elem (baseNameOf (toString (server.command or ""))) [
      "bun"
      "bunx"
      "deno"
      "java"
      "node"
      "npm"
      "npx"
      "pnpm"
    ];
in
{
  config.parts = lib.toList {
    systemd.services.${instance.unit}.serviceConfig = lib.mapAttrs (_: lib.mkDefault) {
      UMask = "0077";
      KeyringMode = "private";
      RemoveIPC = true;

      NoNewPrivileges = true;
      CapabilityBoundingSet = "";
      AmbientCapabilities = "";
      RestrictSUIDSGID = true;
      LockPersonality = true;
      RestrictRealtime = true;
      RestrictNamespaces = true;
      # V8, and with it Node, Chromium and Deno, needs writable code pages; nothing of ours does.
      MemoryDenyWriteExecute = !(lib.any compiles (lib.attrValues cfg.settings.mcp_servers));

      ProtectSystem = "strict";
      PrivateTmp = true;
      # All processes of the machine share that of the host.
      TemporaryFileSystem = [ "/dev/shm:mode=1777" ];
      PrivateMounts = true;
      PrivateIPC = true;
      PrivateUsers = true;
      PrivateDevices = true;
      DevicePolicy = "closed";
      ProtectClock = true;
      ProtectControlGroups = true;
      ProtectHostname = true;
      ProtectKernelLogs = true;
      ProtectKernelModules = true;
      ProtectKernelTunables = true;
      # `ps` shows the agent's own processes; `free` and `uptime` have nothing to read.
      ProtectProc = "invisible";
      ProcSubset = "pid";

      # Not AF_NETLINK: `ip` is empty, names resolve all the same.
      RestrictAddressFamilies = [
        "AF_UNIX"
        "AF_INET"
        "AF_INET6"
      ];
      # The metadata services of clouds, which give credentials to every process that asks.
      IPAddressDeny = [
        "169.254.169.254"
        "fd00:ec2::254"
      ];

      SystemCallArchitectures = "native";
      SystemCallFilter = [
        "@system-service"
        "~@privileged @resources @obsolete"
        # Part of @sandbox since systemd 254.
        "landlock_create_ruleset"
        "landlock_add_rule"
        "landlock_restrict_self"
      ];
      # cp -p, tar and sed -i try to chown and carry on when they may not; a signal would end them.
      SystemCallErrorNumber = "EPERM";
    };
  };
}
