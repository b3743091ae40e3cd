# The daemon holds keys and runs what a model asks for, so it gets what it needs and nothing else.
# Every key is a default: `systemd.services.hermes-agent.serviceConfig.PrivateDevices = false;` takes one back.
{
  config,
  instance,
  lib,
  ...
}:
let
  confinement = import ./confinement.nix;
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
    systemd.services.${instance.unit}.serviceConfig = lib.mapAttrs (_: lib.mkDefault) (
      confinement.unprivileged
      // confinement.alone
      // {
        UMask = "0077";

        # V8, and with it Node, Chromium and Deno, needs writable code pages; nothing of ours does.
        MemoryDenyWriteExecute = !(lib.any compiles (lib.attrValues cfg.settings.mcp_servers));

        ProtectSystem = "strict";
        PrivateTmp = true;
        # All processes of the machine share that of the host.
        TemporaryFileSystem = [ "/dev/shm:mode=1777" ];

        # The metadata services of clouds, which give credentials to every process that asks.
        IPAddressDeny = [
          "169.254.169.254"
          "fd00:ec2::254"
        ];

        SystemCallFilter = [
          "@system-service"
          "~@privileged @resources @obsolete"
          # Part of @sandbox since systemd 254.
          "landlock_create_ruleset"
          "landlock_add_rule"
          "landlock_restrict_self"
        ];
      }
    );
  };
}
