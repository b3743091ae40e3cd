# Who it runs as, and who has the command.
{ config, lib, ... }:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.services.hermes-agent;
in
{
  options.services.hermes-agent = {
    user = mkOption {
      type = types.str;
      default = "hermes";
      description = "The user that it runs as.";
    };

    group = mkOption {
      type = types.str;
      default = "hermes";
      description = "The group that it runs as; its members may talk to the daemon.";
    };

    createUser = mkOption {
      type = types.bool;
      default = cfg.user == "hermes";
      defaultText = lib.literalExpression ''config.services.hermes-agent.user == "hermes"'';
      description = "Whether to create the user and the group; otherwise they have to exist.";
    };

    addToSystemPackages = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether everybody has the command `hermes`. It changes no permissions: members of `group` reach the daemon,
        everybody else has an agent in a home of their own.
      '';
    };
  };

  config = mkIf cfg.enable {
    users.users = mkIf cfg.createUser {
      ${cfg.user} = { isSystemUser = true; inherit (cfg) group; home = cfg.stateDir; };
    };
    users.groups = mkIf cfg.createUser { ${cfg.group} = { }; };
    environment.systemPackages = lib.optional cfg.addToSystemPackages cfg.finalPackage;
  };
}
