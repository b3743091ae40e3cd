# Options of upstream's module without a counterpart here, each with what to do instead: modules of the options at `path`.
{ lib }:
path:
let
  gone = name: advice: lib.mkRemovedOptionModule (path ++ [ name ]) advice;
in
lib.mapAttrsToList gone {
  container = "The agent runs as a hardened systemd service; there is no container to manage. What its tools need goes to services.hermes-agent.extraPackages, directories to systemd.services.hermes-agent.serviceConfig.BindPaths, devices to DeviceAllow.";
  backend = "The daemon serves HTTP itself: services.hermes-agent.settings.server.host and .port, with the key of `hermes gateway key`.";
  serviceConfig = "Set systemd.services.hermes-agent.serviceConfig: every key of the unit is a default.";
  mutableConfig = "Declared keys always win, and what users set lies in config.local.yaml beside them; remove this line.";
}
