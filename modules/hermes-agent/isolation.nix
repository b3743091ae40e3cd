# What isolated plugins run in: a unit of systemd for each process, which a socket starts, with a user and a private home
# of its own. The unit of the daemon may make no namespaces, so that bubblewrap cannot confine them there.
{
  config,
  instance,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib)
    concatMapStringsSep
    filter
    hasPrefix
    listToAttrs
    mkDefault
    mkIf
    mkOption
    nameValuePair
    optionalAttrs
    removePrefix
    types
    ;
  confinement = import ./confinement.nix;
  cfg = config;
  names = import ./names.nix { inherit lib; };
  of = lib.optionalString (!instance.plain) " ${instance.name}";

  section = if lib.isAttrs cfg.settings.plugins then cfg.settings.plugins else { };
  entries = if lib.isAttrs (section.entries or null) then section.entries else { };
  entry = plugin: if lib.isAttrs (entries.${plugin} or null) then entries.${plugin} else { };
  listed = value: if lib.isList value then value else [ ];

  # Those that the settings isolate by name, and with `isolation = "host"` those whose names evaluation knows.
  byEntry = filter (plugin: (entry plugin).isolation or null == "host") (lib.attrNames entries);
  known =
    listed (section.enabled or null)
    ++ map (plugin: plugin.pluginName) (
      filter (plugin: lib.isAttrs plugin && plugin ? pluginName) cfg.extraPlugins
    );
  byAll = lib.optionals ((section.isolation or null) == "host") (
    filter (plugin: (entry plugin).isolation or null != "in_process") known
  );
  hasLauncher =
    !(lib.elem (section.host.launcher or null) [
      null
      [ ]
      ""
    ]);
  # An option that is not set is null; the default is the agent's.
  memoryMb = if lib.isInt (section.host.memory_mb or null) then section.host.memory_mb else 1024;
  isolated = lib.unique (cfg.plugins.isolated ++ byEntry ++ byAll);

  granted =
    plugin: kind:
    map (removePrefix "files.${kind}:") (
      filter (hasPrefix "files.${kind}:") (listed ((entry plugin).granted_capabilities or null))
    );
  # What systemd would read as something else.
  odd =
    plugin:
    filter (path: !(hasPrefix "/" path && confinement.isPlainPath path)) (
      granted plugin "read" ++ granted plugin "write"
    );
  withOdd = filter (plugin: odd plugin != [ ]) isolated;

  root = plugin: "${instance.pluginSockets}/root/${names.pluginName plugin}";
  directory = {
    d = {
      user = "root";
      group = "root";
      mode = "0755";
    };
  };

  # As `hermes-plugin@.service` for other distributions, with NixOS' paths.
  unit =
    plugin:
    confinement.unprivileged
    // confinement.alone
    // confinement.perConnection
    // {
      WorkingDirectory = "/";
      User = "hermes-p-${lib.substring 0 12 (builtins.hashString "sha256" (instance.pluginUnit plugin))}";
      # Granted paths are those of the group that commands have, where there is one.
      Group = if cfg.tools.sandbox != null then instance.workGroup else cfg.group;
      UMask = "0077";
      StateDirectory = "${instance.pluginState}/${names.pluginName plugin}";
      StateDirectoryMode = "0700";
      RootDirectory = root plugin;
      MountAPIVFS = true;
      BindReadOnlyPaths = confinement.systemPlaces ++ map (path: "-${path}") (granted plugin "read");
      BindPaths = map (path: "-${path}") (granted plugin "write");
      # The agent passes the folder of a plugin of its home; it is unpacked here.
      TemporaryFileSystem = [
        "/dev/shm:mode=1777"
        "${cfg.stateDir}:mode=1777"
      ];
      ProtectHome = true;
      # A loopback of its own, and nothing else; the agent listens there for the granted hosts.
      PrivateNetwork = true;

      MemoryMax = if memoryMb == 0 then "infinity" else "${toString memoryMb}M";
      TasksMax = 256;
      LimitNPROC = 256;
      # The program of the unit reports that a process was ended for its memory.
      OOMPolicy = "continue";
      KillSignal = "SIGKILL";

    };
in
{
  options.plugins.units = mkOption {
    type = types.listOf types.str;
    internal = true;
    description = "Plugins that have a unit of their own.";
  };

  options.plugins.isolated = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [ "weather" ];
    description = ''
      Plugins that run in processes of their own (`settings.plugins.entries.<name>.isolation = "host"`), each in a unit
      `hermes-plugin-<name>@` with a user and a private home of its own. Plugins that the settings isolate by name get
      one by themselves; with `settings.plugins.isolation = "host"` also those of `settings.plugins.enabled` and of
      `buildHermesPlugin`. The build refuses an isolated plugin without a unit.
    '';
  };

  config = {
    settings = mkIf (cfg.plugins.isolated != [ ]) {
      plugins.entries = listToAttrs (
        map (plugin: nameValuePair plugin { isolation = "host"; }) cfg.plugins.isolated
      );
    };

    plugins.units = if hasLauncher then [ ] else isolated;

    assertions = [
      {
        assertion = withOdd == [ ];
        message = "${instance.option}: ${
          concatMapStringsSep ", " (plugin: concatMapStringsSep ", " (path: "`${path}`") (odd plugin)) withOdd
        } (granted_capabilities of ${
          concatMapStringsSep ", " (plugin: "`${plugin}`") withOdd
        }) cannot be shown to a plugin: a path begins with a slash, and a blank, a quotation mark or one of \\ : % [ ] * ? in it means something to systemd. Mount or link it at another path, and grant that one.";
      }
    ];

    parts = lib.optional (cfg.plugins.units != [ ]) {
      systemd.sockets = listToAttrs (
        map (
          plugin:
          nameValuePair (instance.pluginUnit plugin) {
            description = "Plugin ${plugin} of the Hermes agent" + of;
            wantedBy = [ "sockets.target" ];
            before = [ "${instance.unit}.service" ];
            socketConfig = {
              ListenStream = "${instance.pluginSockets}/${names.pluginName plugin}.sock";
              Accept = true;
              SocketUser = cfg.user;
              SocketMode = "0600";
              # The agent takes a socket for a unit that is there.
              RemoveOnStop = true;
              # The daemon, and the commands of the operator in its home.
              MaxConnections = mkDefault 8;
              TriggerLimitIntervalSec = 0;
            };
          }
        ) cfg.plugins.units
      );

      systemd.services =
        listToAttrs (
          map (
            plugin:
            nameValuePair "${instance.pluginUnit plugin}@" {
              description = "Plugin ${plugin} of the Hermes agent" + of;
              unitConfig.CollectMode = "inactive-or-failed";
              # The daemon starts it again.
              restartIfChanged = false;
              path = import ./path.nix { inherit pkgs; } ++ cfg.extraPackages;
              environment = {
                TMPDIR = "/tmp";
              }
              // optionalAttrs (granted plugin "read" != [ ]) {
                HERMES_PLUGIN_READ = lib.concatStringsSep ":" (granted plugin "read");
              }
              // optionalAttrs (granted plugin "write" != [ ]) {
                HERMES_PLUGIN_WRITE = lib.concatStringsSep ":" (granted plugin "write");
              };
              serviceConfig = {
                ExecStart = utils.escapeSystemdExecArgs [
                  cfg.finalPackage.environment.interpreter
                  "-I"
                  "-m"
                  "hermes_agent.system.plugin_unit"
                ];
              }
              // lib.mapAttrs (_: mkDefault) (unit plugin);
            }
          ) cfg.plugins.units
        )
        // {
          ${instance.unit} = {
            wants = map (plugin: "${instance.pluginUnit plugin}.socket") cfg.plugins.units;
            after = map (plugin: "${instance.pluginUnit plugin}.socket") cfg.plugins.units;
          };
        };

      systemd.tmpfiles.settings."10-hermes-agent" = {
        ${instance.pluginSockets} = directory;
        "${instance.pluginSockets}/root" = directory;
      }
      // listToAttrs (map (plugin: nameValuePair (root plugin) directory) cfg.plugins.units);
    };
  };
}
