# What upstream's profiles have beside the options of an instance.
{
  config,
  host,
  lib,
  ...
}:
{
  options.gateway.enable = lib.mkOption {
    type = lib.types.bool;
    default = false;
    description = "Whether the profile has a daemon.";
  };

  config.enable = lib.mkDefault (host.services.hermes-agent.enable && config.gateway.enable);
}
