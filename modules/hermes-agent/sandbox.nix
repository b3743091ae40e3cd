# What the agent's tools run in: a unit of systemd for each command, which a socket starts, with a user that exists
# while the command runs. It shares the workspace with the daemon by a group, and can neither read, signal nor call it.
{
  config,
  derived,
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
    mkDefault
    mkIf
    mkOption
    optionalAttrs
    optionals
    types
    ;
  confinement = import ./confinement.nix;
  cfg = config;
  profile = cfg.tools.sandbox;
  strict = profile == "strict";
  host = profile == "host";

  group = instance.workGroup;
  root = instance.execRoot;
  of = lib.optionalString (!instance.plain) " ${instance.name}";
  below = path: path == cfg.stateDir || hasPrefix "${cfg.stateDir}/" path;

  # Let what the daemon or a command creates be changed by the other.
  shared = "group:${group}:rwx,default:group:${group}:rwx,default:user::rwx,default:group::rwx,default:other::---";

  # What every profile has. As `hermes-exec@.service` for other distributions, with NixOS' paths.
  common =
    confinement.unprivileged
    // confinement.perConnection
    // {
      User = instance.execUser;
      Group = group;
      UMask = "0002";
      WorkingDirectory = cfg.workingDirectory;
      BindPaths = [ cfg.workingDirectory ] ++ cfg.tools.readWritePaths;

      MemoryMax = cfg.tools.memoryMax;
      TasksMax = cfg.tools.tasksMax;
      LimitNPROC = cfg.tools.tasksMax;
      OOMPolicy = "kill";
      RuntimeMaxSec = "1d";
    };

  # What is listed is there, and nothing else: other users' files, processes, devices and daemons are not.
  apart = confinement.alone // {
    # An empty directory, by systemd-tmpfiles.
    RootDirectory = root;
    MountAPIVFS = true;
    BindReadOnlyPaths =
      confinement.systemPlaces
      # Where the names of hosts are looked up: glibc asks nscd, and others the servers of resolv.conf. systemd-resolved
      # listens on an address of this machine, which is out of reach, so that its own servers stand in its place.
      ++ optionals (!strict) [
        "-/run/nscd:/var/run/nscd"
        "-/run/systemd/resolve"
        "-/run/systemd/resolve/resolv.conf:/run/systemd/resolve/stub-resolv.conf"
      ]
      ++ map (path: "-${path}") readable;
    # Whatever else is listed.
    InaccessiblePaths = common.InaccessiblePaths ++ [
      "-+${derived.home}"
      "-+${instance.run}"
    ];
    TemporaryFileSystem = [ "/dev/shm:mode=1777" ];
    ProtectHome = if below' cfg.workingDirectory then "tmpfs" else true;
  };
  # Of the agent's own home (`~/`) commands see nothing.
  readable =
    let
      named = cfg.settings.terminal.sandbox_paths;
    in
    filter (hasPrefix "/") (if named == null then [ ] else named);
  # What systemd would read as something else.
  odd = filter (path: !confinement.isPlainPath path) (
    [ cfg.workingDirectory ] ++ cfg.tools.readWritePaths ++ readable
  );
  below' = path: hasPrefix "/home/" path || hasPrefix "/root/" path;

  rest =
    if strict then
      { PrivateNetwork = true; }
    else if host then
      {
        SystemCallFilter = [ "~@clock" ];
        # Of the agent's state nothing is there but the workspace.
        TemporaryFileSystem = [ "${cfg.stateDir}:ro" ];
        InaccessiblePaths = common.InaccessiblePaths ++ [ "-/var/lib/private" ];
      }
    # The world, but neither this machine's own services nor the metadata of a cloud.
    else
      {
        IPAddressDeny = [
          "localhost"
          "link-local"
          "169.254.169.254"
          "fd00:ec2::254"
        ];
      };
in
{
  options.tools = {
    sandbox = mkOption {
      type = types.nullOr (
        types.enum [
          "strict"
          "workspace"
          "host"
        ]
      );
      default = if below cfg.workingDirectory then "strict" else null;
      defaultText = lib.literalMD "`\"strict\"`, or null where `workingDirectory` is outside of `stateDir`";
      description = ''
        What commands of the agent reach. All of them: the workspace, to read and write, programs, and never the daemon,
        its keys or its state.

        - `strict`: nothing else but what `readWritePaths` and `settings.terminal.sandbox_paths` name, and of the network
          what `settings.terminal.network` allows.
        - `workspace`: also the network, past the table of hosts, but not this machine's own services (but for Unix
          sockets without a file, which belong to the network).
        - `host`: what any user of the machine reaches: files that everybody may read, local services, devices,
          namespaces (podman, `nix build`).
        - null: no unit; the agent asks about each command.
      '';
    };

    memoryMax = mkOption {
      type = types.strMatching "infinity|[0-9]+(\\.[0-9]+)?[KMGT]?|[0-9]{1,2}%";
      default = "2G";
      description = "Most memory of one command: a number with K, M, G or T, a percentage below 100, or infinity.";
    };

    maxExposure = mkOption {
      type = types.nullOr (types.numbers.between 0 10);
      default =
        if profile == null then
          null
        else
          {
            strict = 1.5;
            workspace = 2;
            host = 5;
          }
          .${profile};
      defaultText = lib.literalMD "1.5, 2 or 5, by `tools.sandbox`";
      description = "Most points of 10 that `systemd-analyze security` may give the unit of commands; the build refuses more. null: any.";
    };

    tasksMax = mkOption {
      type = types.ints.positive;
      default = 512;
      description = "Most processes and threads of one command.";
    };

    readWritePaths = mkOption {
      type = types.listOf (types.strMatching "/.*[^/]");
      default = [ ];
      example = [ "/srv/data" ];
      description = ''
        Directories beside the workspace that commands may change, as far as their permissions let the group `hermes-work`
        (`hermes-work-<name>` of another instance).
      '';
    };
  };

  config = mkIf (profile != null) {
    assertions = [
      {
        assertion = odd == [ ];
        message = "${instance.option}: ${
          concatMapStringsSep ", " (path: "`${path}`") odd
        } (workingDirectory, tools.readWritePaths, settings.terminal.sandbox_paths) cannot be shown to commands: a blank, a quotation mark or one of \\ : % [ ] * ? in a path means something to systemd. Mount or link it at another path, and name that one.";
      }
    ];

    parts = lib.toList {
      # `hermes-service` reads what commands made.
      users.groups.${group}.members = [ cfg.user ];

      systemd.sockets.${instance.exec} = {
        description = "Commands of the Hermes agent" + of;
        wantedBy = [ "sockets.target" ];
        before = [ "${instance.unit}.service" ];
        socketConfig = {
          ListenStream = instance.execSocket;
          Accept = true;
          # The agent alone: a command does not start another one beside its own limits.
          SocketUser = cfg.user;
          SocketMode = "0600";
          # The unit counts commands by user, and refuses those above its limits; there is room to do so.
          MaxConnections = mkDefault 256;
          TriggerLimitIntervalSec = 0;
        };
      };

      systemd.services."${instance.exec}@" = {
        description = "A command of the Hermes agent" + of;
        unitConfig.CollectMode = "inactive-or-failed";
        # A switch of the system leaves running commands alone.
        restartIfChanged = false;
        path = import ./path.nix { inherit pkgs; } ++ cfg.extraPackages;
        environment = {
          HOME = "/tmp";
          TMPDIR = "/tmp";
          # Commands at once of one user, and of all users but root: the rest is the operator's.
          HERMES_EXEC_PER_CALLER = mkDefault "48";
          HERMES_EXEC_MOST = mkDefault "60";
          # git refuses a repository of another user; the workspace is shared.
          GIT_CONFIG_COUNT = "1";
          GIT_CONFIG_KEY_0 = "safe.directory";
          GIT_CONFIG_VALUE_0 = "*";
        };
        serviceConfig = {
          ExecStart = utils.escapeSystemdExecArgs [
            cfg.package.gates.agent.interpreter
            "-I"
            "-m"
            "hermes_agent.system.exec_unit"
          ];
        }
        // lib.mapAttrs (_: mkDefault) (common // optionalAttrs (!host) apart // rest);
      };

      systemd.services.${instance.unit} = {
        wants = [ "${instance.exec}.socket" ];
        after = [ "${instance.exec}.socket" ];
        serviceConfig.SupplementaryGroups = [ group ];
      };

      systemd.tmpfiles.settings."10-hermes-agent" = {
        ${root} = mkIf (!host) {
          d = {
            user = "root";
            group = "root";
            mode = "0755";
          };
        };
        ${cfg.workingDirectory} = mkIf (below cfg.workingDirectory) {
          d = {
            inherit (cfg) user;
            inherit group;
            mode = "2770";
          };
          "a+".argument = shared;
        };
      };
    };
  };
}
