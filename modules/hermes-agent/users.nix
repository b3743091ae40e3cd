# Who it runs as, and who has the command.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkIf mkOption types;
  cfg = config.services.hermes-agent;

  # `hermes` in the daemon's home, as its user: what it may not change there it says by the name of the option.
  asService = pkgs.writeShellScriptBin "hermes-service" ''
    as=()
    if [ "$(id -un)" != ${cfg.user} ]; then
      [ "$(id -u)" = 0 ] || { echo "hermes-service: run it with sudo: it works in ${cfg.home}, as ${cfg.user}" >&2; exit 1; }
      as=(${pkgs.util-linux}/bin/runuser -u ${cfg.user} --)
    fi
    cd ${cfg.workingDirectory}
    exec "''${as[@]}" ${pkgs.coreutils}/bin/env HOME=${cfg.stateDir} HERMES_HOME=${cfg.home} \
      HERMES_DECLARED_CONFIG=${config.systemd.services.hermes-agent.environment.HERMES_DECLARED_CONFIG} \
      ${cfg.finalPackage}/bin/hermes "$@"
  '';
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
      description = "The group that it runs as.";
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
        Whether everybody has the command `hermes`, with an agent in a home of their own. It changes no permissions: the
        daemon's home and its control socket stay its user's; `sudo hermes-service …` is the command there.
      '';
    };
  };

  config = mkIf cfg.enable {
    users.users = mkIf cfg.createUser {
      ${cfg.user} = { isSystemUser = true; inherit (cfg) group; home = cfg.stateDir; };
    };
    users.groups = mkIf cfg.createUser { ${cfg.group} = { }; };
    environment.systemPackages = [ asService ] ++ lib.optional cfg.addToSystemPackages cfg.finalPackage;
  };
}
