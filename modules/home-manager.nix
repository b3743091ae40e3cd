# services.hermes-agent in a home: a service of the user, from the same options as on NixOS.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkDefault mkIf mkOption types;
  cfg = config.services.hermes-agent;
  # As nixpkgs' `utils.escapeSystemdExecArgs`, which Home Manager does not pass on.
  quoted = lib.concatMapStringsSep " " (text: lib.replaceStrings [ "%" "$" ] [ "%%" "$$" ] (builtins.toJSON text));
  unit = import ./hermes-agent/unit.nix { inherit cfg lib pkgs; escape = quoted; };

  # There is no `system.checks` here: the file itself waits for them.
  declared = pkgs.runCommand "hermes-agent-settings.json" { checks = map toString cfg.checks; } ''
    cp ${cfg.declaredConfig} $out
  '';
in
{
  _class = "homeManager";
  imports = [
    ./hermes-agent/options.nix
    ./hermes-agent/settings.nix
    ./hermes-agent/mcp.nix
    ./hermes-agent/secrets.nix
    ./hermes-agent/plugins.nix
    ./hermes-agent/checks.nix
    ./hermes-agent/documents.nix
    ./hermes-agent/assertions.nix
    ./hermes-agent/upstream.nix
  ];

  options = {
    services.hermes-agent = {
      hermesHome = mkOption {
        type = types.strMatching "/.*[^/]";
        default = "${config.home.homeDirectory}/.hermes";
        defaultText = lib.literalExpression ''"''${config.home.homeDirectory}/.hermes"'';
        description = "`HERMES_HOME`.";
      };

      workingDirectory = mkOption {
        type = types.nullOr (types.strMatching "/.*[^/]");
        default = null;
        example = "/home/ann/agent";
        description = ''
          Where the daemon, the command `hermes` and their tools work; it has to exist. null: the daemon works in
          `workspace` in `hermesHome`, which it makes, and the command where it is started.
        '';
      };

      gateway.enable = mkOption {
        type = types.bool;
        default = true;
        description = "Whether the daemon runs; without it there are the settings and the command alone.";
      };
    };

    programs.hermes-agent.enable = lib.mkEnableOption "the command `hermes` for this user, with the same settings";
  };

  config = mkIf cfg.enable {
    services.hermes-agent.home = cfg.hermesHome;

    home.packages = mkIf config.programs.hermes-agent.enable [ cfg.finalPackage ];
    home.sessionVariables = mkIf config.programs.hermes-agent.enable {
      HERMES_HOME = cfg.hermesHome;
      HERMES_DECLARED_CONFIG = "${declared}";
    };

    systemd.user.services.hermes-agent = mkIf cfg.gateway.enable {
      Unit = {
        Description = "Hermes agent";
        StartLimitBurst = 5;
        StartLimitIntervalSec = 300;
        X-Restart-Triggers = [ "${declared}" ];
      };
      Service = unit.fixed // lib.mapAttrs (_: mkDefault) (unit.defaults // {
        # What a user's manager can keep without root; on NixOS the system's service keeps more.
        UMask = "0077";
        NoNewPrivileges = true;
        LockPersonality = true;
        RestrictRealtime = true;
        RestrictSUIDSGID = true;
        RestrictAddressFamilies = [ "AF_UNIX" "AF_INET" "AF_INET6" "AF_NETLINK" ];
        SystemCallArchitectures = "native";
      }) // {
        Environment = [ "PATH=${lib.makeBinPath unit.path}" ]
          ++ lib.mapAttrsToList (name: value: builtins.toJSON "${name}=${value}") (unit.environment // { HERMES_DECLARED_CONFIG = "${declared}"; });
      };
      Install.WantedBy = [ "default.target" ];
    };
  };
}
