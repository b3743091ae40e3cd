# Values of the daemon's unit that the check of the units refuses, in the words of refused/<name>.expected.
{
  unit-with-an-odd-size = {
    MemoryHigh = "2 gigabytes";
  };
  unit-with-a-key-of-nobody = {
    MemoryMaxx = "2G";
  };
  unit-with-an-odd-time = {
    RuntimeMaxSec = "some hours";
  };
  unit-that-is-open = {
    CapabilityBoundingSet = "~";
    DevicePolicy = "auto";
    NoNewPrivileges = false;
    PrivateDevices = false;
    PrivateTmp = false;
    PrivateUsers = false;
    ProtectHome = false;
    ProtectKernelModules = false;
    ProtectKernelTunables = false;
    ProtectSystem = false;
    RestrictNamespaces = false;
  };
}
