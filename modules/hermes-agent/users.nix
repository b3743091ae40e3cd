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

  # For members of the group a client of the daemon; everybody else has an agent in a home of their own.
  client = pkgs.runCommand "hermes-client" { nativeBuildInputs = [ pkgs.makeBinaryWrapper ]; } ''
    makeWrapper ${cfg.finalPackage}/bin/hermes $out/bin/hermes \
      --set-default HERMES_DAEMON_SOCKET /run/hermes-agent/control.sock
  '';
in
{
  options.services.hermes-agent = {
    user = mkOption {
      type = types.strMatching "[A-Za-z_][A-Za-z0-9_-]{0,30}" // { description = "name of a user: letters, digits, _ and -, at most 31"; };
      default = "hermes";
      description = "The user that it runs as.";
    };

    group = mkOption {
      type = types.strMatching "[A-Za-z_][A-Za-z0-9_-]{0,30}" // { description = "name of a group: letters, digits, _ and -, at most 31"; };
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
        Whether everybody has the command `hermes`. For members of `group` it is a client of the daemon: chat, `send`,
        `gateway status` and their own sessions, over the control socket. Everybody else, and whoever sets `HERMES_HOME`,
        has an agent in a home of their own. It changes no permissions; `sudo hermes-service …` works in the daemon's home.
      '';
    };
  };

  config = mkIf cfg.enable {
    users.users = mkIf cfg.createUser {
      ${cfg.user} = { isSystemUser = true; inherit (cfg) group; home = cfg.stateDir; };
    };
    users.groups = mkIf cfg.createUser { ${cfg.group} = { }; };
    environment.systemPackages = [ asService ] ++ lib.optional cfg.addToSystemPackages client;
  };
}
