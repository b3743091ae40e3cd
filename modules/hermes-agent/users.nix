# Who it runs as, and who has the command (./commands.nix).
{
  config,
  instance,
  lib,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  cfg = config;
in
{
  options = {
    user = mkOption {
      type = types.strMatching "[A-Za-z_][A-Za-z0-9_-]{0,30}";
      default = instance.user;
      defaultText = lib.literalMD "`\"hermes\"`, of another instance `\"hermes-<name>\"`";
      description = "The user that it runs as: a name of letters, digits, _ and -, at most 31.";
    };

    group = mkOption {
      type = types.strMatching "[A-Za-z_][A-Za-z0-9_-]{0,30}";
      default = instance.user;
      defaultText = lib.literalMD "`\"hermes\"`, of another instance `\"hermes-<name>\"`";
      description = "The group that it runs as: a name of letters, digits, _ and -, at most 31.";
    };

    createUser = mkOption {
      type = types.bool;
      default = cfg.user == instance.user;
      defaultText = lib.literalMD "whether `user` has its default";
      description = "Whether to create the user and the group; otherwise they have to exist.";
    };

    addToSystemPackages = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether everybody has the command `hermes`. For members of `group` it is a client of the daemon: chat, `send`,
        `gateway status` and their own sessions, over the control socket. Everybody else, and all who set `HERMES_HOME`,
        has an agent in a home of their own. It changes no permissions; `sudo hermes-service …` works in the daemon's home.
        Of another instance, whether members of its group have `hermes-<name>` as its client.
      '';
    };
  };

  config.parts = lib.toList {
    users.users = mkIf cfg.createUser {
      ${cfg.user} = {
        isSystemUser = true;
        inherit (cfg) group;
        home = cfg.stateDir;
      };
    };
    users.groups = mkIf cfg.createUser { ${cfg.group} = { }; };
  };
}
