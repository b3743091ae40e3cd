# What the units of the agent have in common, as values of `serviceConfig`, and the places that a unit with a root of its
# own shows. tests/nix/test_places.py compares the places with those of the other sandboxes.
{
  # No privileges, and nothing of the machine to change. Every unit that runs code has it.
  unprivileged = {
    NoNewPrivileges = true;
    CapabilityBoundingSet = "";
    AmbientCapabilities = "";
    KeyringMode = "private";
    PrivateIPC = true;
    PrivateMounts = true;
    ProtectControlGroups = true;
    ProtectHostname = true;
    ProtectKernelLogs = true;
    ProtectKernelModules = true;
    ProtectKernelTunables = true;
    LockPersonality = true;
    RestrictRealtime = true;
    RestrictSUIDSGID = true;
    RemoveIPC = true;
    SystemCallArchitectures = "native";
    # cp -p, tar and sed -i try to chown and carry on when they may not; a signal would end them.
    SystemCallErrorNumber = "EPERM";
  };

  # No devices, no namespaces, and no users and processes but its own.
  alone = {
    RestrictNamespaces = true;
    # Not AF_NETLINK: `ip` is empty, names resolve all the same.
    RestrictAddressFamilies = [
      "AF_UNIX"
      "AF_INET"
      "AF_INET6"
    ];
    SystemCallFilter = [
      "@system-service"
      "~@privileged @obsolete"
    ];
    PrivateDevices = true;
    DevicePolicy = "closed";
    # It implies DeviceAllow=char-rtc, a list that leaves other devices out: not for a unit that has some.
    ProtectClock = true;
    PrivateUsers = true;
    ProtectProc = "invisible";
    # `ps` shows the unit's own processes; `free` and `uptime` have nothing to read.
    ProcSubset = "pid";
  };

  # What runs in a unit that a socket starts for each connection ends with it, and takes no memory of others.
  perConnection = {
    StandardInput = "socket";
    StandardOutput = "journal";
    StandardError = "journal";
    DynamicUser = true;
    # (`+`: a path below the root directory, where there is one.)
    InaccessiblePaths = [ "-+/etc/hermes-agent" ];
    ProtectSystem = "strict";
    PrivateTmp = true;
    MemorySwapMax = 0;
    LimitCORE = 0;
    CPUWeight = 50;
    # What is left running ends with the unit.
    KillMode = "control-group";
    TimeoutStopSec = 2;
  };

  systemPlaces = [
    "/nix/store"
    "/etc"
    # `/bin/sh`, `/usr/bin/env`, and the loaders of programs that were built for other distributions (nix-ld).
    "-/bin"
    "-/usr"
    "-/lib"
    "-/lib32"
    "-/lib64"
    # Not the rest of /nix/var: the build daemon answers everybody.
    "-/nix/var/nix/profiles"
    "-/run/current-system"
    "-/run/booted-system"
    "-/run/opengl-driver"
    "-/var/cache/fontconfig"
  ];

  # Whether systemd reads a path as it is written.
  isPlainPath = path: builtins.match "[^]['\"\\:%[:space:]*?]*" path != null;
}
