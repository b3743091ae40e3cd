# The unit: it is started when it answers, restarted when it hangs, and left alone when it cannot work.
{
  config,
  derived,
  host,
  instance,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib)
    mkDefault
    mkIf
    mkOption
    types
    ;
  cfg = config;
  unit = import ./unit.nix {
    inherit
      cfg
      derived
      lib
      pkgs
      ;
    escape = utils.escapeSystemdExecArgs;
  };

  # Blocks of the settings that a reload takes in (a test asks the agent); anything else needs a restart.
  live = [
    "auxiliary"
    "model"
    "platforms"
    "plugins"
    "providers"
    "security"
    "web"
  ];
  # A path that stays: the settings' own would be another with every change, and the unit with it.
  etc = instance.settings;

  # The units of this host, as systemd is given them.
  unitNames = [
    "${instance.unit}.service"
  ]
  ++ lib.optionals (cfg.tools.sandbox != null) [
    "${instance.exec}@.service"
    "${instance.exec}.socket"
  ]
  ++ lib.concatMap (plugin: [
    "${instance.pluginUnit plugin}@.service"
    "${instance.pluginUnit plugin}.socket"
  ]) cfg.plugins.units
  ++ lib.optional cfg.localModel.enable "${instance.localModel}.service";
  unitCheck = import ../../nix/unit-check.nix { inherit lib pkgs; } {
    units = lib.genAttrs unitNames (name: host.systemd.units.${name}.unit);
    inherit (instance) option;
    exposure = {
      "${instance.unit}.service" = cfg.maxExposure;
      "${instance.exec}@.service" = cfg.tools.maxExposure;
      "${instance.localModel}.service" = cfg.maxExposure;
    }
    // lib.genAttrs (map (plugin: "${instance.pluginUnit plugin}@.service") cfg.plugins.units) (
      _: cfg.maxExposure
    );
  };
in
{
  options.maxExposure = mkOption {
    type = types.nullOr (types.numbers.between 0 10);
    default = 2;
    description = "Most points of 10 that `systemd-analyze security` may give the unit of the daemon; the build refuses more. null: any.";
  };

  config.parts = lib.toList {
    environment.etc = mkIf (cfg.configFile == null) { ${etc}.source = derived.declaredConfig; };
    system.checks = derived.checks ++ [ unitCheck ];
    # The operator sees, while switching, what the checks let pass.
    system.activationScripts."${instance.unit}-warnings" = mkIf (derived.startCheck != null) (
      import ./warnings.nix {
        inherit instance;
        file = derived.startCheck;
      }
    );

    systemd.services.${instance.unit} = {
      description = "Hermes agent" + lib.optionalString (!instance.plain) " ${instance.name}";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" ];
      startLimitBurst = mkDefault 5;
      startLimitIntervalSec = mkDefault 300;
      restartTriggers = [
        (builtins.hashString "sha256" (
          builtins.toJSON (builtins.removeAttrs derived.declaredSettings live)
        ))
      ];
      reloadTriggers = lib.optional (cfg.configFile == null) derived.declaredConfig;

      inherit (unit) path;
      environment = unit.environment // {
        HOME = cfg.stateDir;
        HERMES_DECLARED_CONFIG =
          if cfg.configFile == null then "/etc/${etc}" else "${derived.declaredConfig}";
      };
      serviceConfig =
        unit.fixed
        // lib.mapAttrs (_: mkDefault) unit.defaults
        // {
          User = cfg.user;
          Group = cfg.group;
        };
    };
  };
}
