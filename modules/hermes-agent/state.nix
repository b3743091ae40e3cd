# Where it keeps what it learns, and where it works.
{
  config,
  instance,
  lib,
  ...
}:
let
  inherit (lib)
    hasPrefix
    mkDefault
    mkIf
    mkOption
    types
    ;
  cfg = config;

  directory = types.strMatching "/.*[^/]";
  below = parent: path: path == parent || hasPrefix "${parent}/" path;

  # systemd makes what lies in /var/lib; anything else is made by tmpfiles and opened for writing.
  ofSystemd = hasPrefix "/var/lib/" cfg.stateDir;
  name = lib.removePrefix "/var/lib/" cfg.stateDir;
  directories = [
    ""
    "/.hermes"
  ];
  own = mode: {
    d = {
      inherit (cfg) user group;
      inherit mode;
    };
  };
  worksElsewhere = !(below cfg.stateDir cfg.workingDirectory);
  worksAtHome = below "/home" cfg.workingDirectory || below "/root" cfg.workingDirectory;
in
{
  options = {
    stateDir = mkOption {
      type = directory;
      default = instance.stateDir;
      defaultText = lib.literalMD "`\"/var/lib/hermes\"`, of another instance `\"/var/lib/hermes-<name>\"`";
      description = "Home of the service: state in `.hermes` (`HERMES_HOME`), and the workspace.";
    };

    workingDirectory = mkOption {
      type = directory;
      default = "${cfg.stateDir}/workspace";
      defaultText = lib.literalExpression ''"''${config.services.hermes-agent.stateDir}/workspace"'';
      description = "Where the agent and its tools work. Outside of `stateDir` it has to exist, writable for `user`.";
    };
  };

  config.parts = lib.toList {
    # The state directory too where systemd makes it: it would give all of it to one owner if it were root's.
    systemd.tmpfiles.settings."10-hermes-agent" =
      lib.genAttrs (map (d: "${cfg.stateDir}${d}") (if ofSystemd then [ "" ] else directories)) (
        _: own "0750"
      )
      // lib.optionalAttrs (below cfg.stateDir cfg.workingDirectory && cfg.tools.sandbox == null) {
        ${cfg.workingDirectory} = own "0750";
      };

    systemd.services.${instance.unit}.serviceConfig = lib.mkMerge [
      (mkIf ofSystemd {
        StateDirectory = map (d: "${name}${d}") directories;
        StateDirectoryMode = mkDefault "0750";
      })
      {
        RuntimeDirectory = instance.unit;
        # The control socket is in it, and stays where it is while the daemon restarts.
        RuntimeDirectoryPreserve = "restart";
        # 0750: members of the group may ask the daemon (chat, send, status). Of a group that is somebody else's, nobody.
        RuntimeDirectoryMode = mkDefault (if cfg.createUser then "0750" else "0700");
        ReadWritePaths =
          lib.optional (!ofSystemd) cfg.stateDir ++ lib.optional worksElsewhere cfg.workingDirectory;
        # Of all homes it sees the one directory that it works in.
        ProtectHome = mkDefault (if worksAtHome then "tmpfs" else true);
        BindPaths = lib.optional worksAtHome cfg.workingDirectory;
      }
    ];
  };
}
