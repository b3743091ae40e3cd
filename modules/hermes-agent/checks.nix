# What has to hold before the agent runs: its arguments, and a start with the declared settings.
{
  config,
  host,
  instance,
  lib,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config;
  local = cfg.localModel or { enable = false; };
  capabilities = toString (
    host.systemd.services.${instance.unit}.serviceConfig.AmbientCapabilities or ""
  );
  # A file that is the whole configuration says its ports to the check of the start alone.
  others = lib.optionals (cfg.configFile != null) (
    lib.filter (each: each.instance.option != instance.option) (
      (import ./instances.nix { inherit lib; }).all host.services.hermes-agent
    )
  );
  taken = lib.listToAttrs (
    lib.concatMap (
      each:
      map (
        at: lib.nameValuePair (toString at.port) "${at.option} of the instance `${each.instance.name}`"
      ) (import ./ports.nix { inherit lib; } each)
    ) others
  );
  named =
    prefix: values:
    lib.listToAttrs (lib.imap0 (i: value: lib.nameValuePair "${prefix}.${toString i}" value) values);
in
{
  options = {
    strictChecks = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether a warning of the checks refuses the build: a key that no plugin declares, a variable that only a file of
        the machine can give, a problem of a tolerated plugin. Otherwise a switch of the system shows the warnings.
      '';
    };

    checks = mkOption {
      type = types.listOf types.package;
      internal = true;
      default = [ ];
      description = "What has to build before the agent runs.";
    };

    startCheck = mkOption {
      type = types.nullOr types.package;
      internal = true;
      readOnly = true;
      description = "The warnings of a start with the declared settings; null where only the machine has them.";
    };

    service = mkOption {
      type = types.attrsOf types.anything;
      internal = true;
      readOnly = true;
      description = "What the unit gives the daemon, for `hermes doctor --declared`.";
    };
  };

  config = {
    service = {
      given = lib.attrNames cfg.environment ++ lib.attrNames cfg.credentials;
      may_have_more = cfg.environmentFiles != [ ];
      has_logins = cfg.authFile != null;
      ports = taken // lib.optionalAttrs local.enable { ${toString local.port} = "localModel.port"; };
      low_ports = lib.hasInfix "CAP_NET_BIND_SERVICE" capabilities;
      texts =
        lib.mapAttrs' (name: lib.nameValuePair "environment.${name}") cfg.environment
        // named "extraArgs" cfg.extraArgs
        // lib.optionalAttrs local.enable (named "localModel.extraArgs" local.extraArgs);
      home_files = lib.mapAttrs (_: toString) cfg.homeFiles;
      inherit (cfg.plugins) tolerated;
    };

    # A file that only the machine has is checked when the daemon starts.
    startCheck =
      if lib.hasPrefix "${builtins.storeDir}/" "${cfg.declaredConfig}" then
        cfg.finalPackage.settingsCheck cfg.declaredConfig
      else
        null;

    checks =
      lib.optional (cfg.extraArgs != [ ]) (cfg.package.gates.argumentsCheck instance.option cfg.extraArgs)
      ++ lib.optional (cfg.startCheck != null) cfg.startCheck;
  };
}
