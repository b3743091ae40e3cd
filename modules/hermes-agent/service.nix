# The unit: it is started when it answers, restarted when it hangs, and left alone when it cannot work.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkDefault mkIf;
  cfg = config.services.hermes-agent;
  unit = import ./unit.nix { inherit cfg lib pkgs; };

  # Blocks of the settings that a reload takes in (a test asks the agent); anything else needs a restart.
  live = [ "auxiliary" "model" "platforms" "plugins" "providers" "security" "web" ];
  # A path that stays: the settings' own would be another with every change, and the unit with it.
  etc = "hermes-agent/settings.json";
in
{
  config = mkIf cfg.enable {
    environment.etc = mkIf (cfg.configFile == null) { ${etc}.source = cfg.declaredConfig; };
    system.checks = cfg.checks;

    systemd.services.hermes-agent = {
      description = "Hermes agent";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" ];
      startLimitBurst = mkDefault 5;
      startLimitIntervalSec = mkDefault 300;
      restartTriggers = [ (builtins.hashString "sha256" (builtins.toJSON (builtins.removeAttrs cfg.declaredSettings live))) ];
      reloadTriggers = lib.optional (cfg.configFile == null) cfg.declaredConfig;

      inherit (unit) path;
      environment = unit.environment // {
        HOME = cfg.stateDir;
        HERMES_DECLARED_CONFIG = if cfg.configFile == null then "/etc/${etc}" else "${cfg.declaredConfig}";
      };
      serviceConfig = unit.fixed // lib.mapAttrs (_: mkDefault) unit.defaults // { User = cfg.user; Group = cfg.group; };
    };
  };
}
