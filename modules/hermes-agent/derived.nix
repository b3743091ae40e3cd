# What follows from the options of an instance, for its files, its units and its checks; each file is given it as
# `derived`. None of it is an option: nothing but this file says it.
{
  config,
  host,
  instance,
  lib,
  pkgs,
}:
let
  inherit (lib) attrNames optional optionalAttrs;
  cfg = config;
  schema = import ./schema.nix {
    inherit lib format;
    special = { };
  };
  format = pkgs.formats.json { };
  files = import ./files.nix { inherit lib pkgs; };
  local = cfg.localModel or { enable = false; };

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
  capabilities = toString (
    host.systemd.services.${instance.unit}.serviceConfig.AmbientCapabilities or ""
  );
  numbered =
    prefix: values:
    lib.listToAttrs (lib.imap0 (i: value: lib.nameValuePair "${prefix}.${toString i}" value) values);
in
rec {
  # `HERMES_HOME`.
  home = (import ./names.nix { inherit lib; }).homeOf cfg;

  # `settings` without what was left to the agent, and the sections of it that are not the agent's.
  declaredSettings = if cfg.configFile != null then { } else schema.declared cfg.settings;
  foreignSettings = lib.filter (name: !(schema.known ? ${name})) (attrNames declaredSettings);

  # The same as the file that the agent is given.
  declaredConfig =
    if cfg.configFile == null then
      format.generate "hermes-agent-settings.json" declaredSettings
    else if lib.isString cfg.configFile then
      cfg.configFile
    else
      "${cfg.configFile}";

  # Commands that install `documents` and `hermesHomeFiles`. With nothing declared they still run where something was:
  # that is how a file goes.
  installFiles = [
    # The workspace is shared with the commands of the agent.
    (files.install {
      mode = "0660";
      name = "hermes-agent-documents";
      declared = cfg.documents;
      target = if cfg.workingDirectory == null then "${home}/workspace" else cfg.workingDirectory;
      inherit home;
    })
    (files.install {
      mode = "0640";
      name = "hermes-agent-home-files";
      declared = cfg.hermesHomeFiles;
      target = home;
      inherit home;
    })
  ];

  # `LoadCredential=` of the unit, and the command that puts `authFile` into the home.
  loadCredential =
    lib.mapAttrsToList (name: path: "${name}:${path}") cfg.credentials
    ++ lib.imap0 (i: path: "env-${toString i}:${path}") cfg.environmentFiles
    ++ optional (cfg.authFile != null) "auth.json:${cfg.authFile}";
  seedAuth = optional (cfg.authFile != null) (
    toString (
      pkgs.writeShellScript "hermes-agent-seed-auth" ''
        set -euo pipefail
        ${lib.optionalString (!cfg.authFileForceOverwrite) ''[ ! -e "$HERMES_HOME/auth.json" ] || exit 0''}
        install -m 0600 -- "$CREDENTIALS_DIRECTORY/auth.json" "$HERMES_HOME/auth.json"
      ''
    )
  );

  # What the unit gives the daemon, for `hermes doctor --declared`.
  service = {
    given = attrNames cfg.environment ++ attrNames cfg.credentials;
    may_have_more = cfg.environmentFiles != [ ];
    has_logins = cfg.authFile != null;
    ports = taken // optionalAttrs local.enable { ${toString local.port} = "localModel.port"; };
    units = cfg.plugins.units or [ ];
    namespaces =
      host.systemd.services.${instance.unit}.serviceConfig.RestrictNamespaces or false != true;
    low_ports = lib.hasInfix "CAP_NET_BIND_SERVICE" capabilities;
    texts =
      lib.mapAttrs' (name: lib.nameValuePair "environment.${name}") cfg.environment
      // numbered "extraArgs" cfg.extraArgs
      // optionalAttrs local.enable (numbered "localModel.extraArgs" local.extraArgs);
    home_files = lib.mapAttrs (name: value: toString (files.asFile name value)) cfg.hermesHomeFiles;
    inherit (cfg.plugins) tolerated;
  };

  # The warnings of a start with the declared settings; null where only the machine has them, which checks them then.
  startCheck =
    if lib.hasPrefix "${builtins.storeDir}/" "${declaredConfig}" then
      cfg.finalPackage.settingsCheck declaredConfig
    else
      null;

  # What has to build before the agent runs: its arguments, and a start.
  checks =
    optional (cfg.extraArgs != [ ]) (cfg.package.gates.argumentsCheck instance.option cfg.extraArgs)
    ++ optional (startCheck != null) startCheck;
}
