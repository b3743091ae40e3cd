# An instance in a home: where it is, and its unit of the user's own manager.
{
  config,
  host,
  instance,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    mkDefault
    mkIf
    mkOption
    types
    ;
  cfg = config;
  first = host.services.hermes-agent.hermesHome;
  # As nixpkgs' `utils.escapeSystemdExecArgs`, which Home Manager does not pass on.
  quoted = lib.concatMapStringsSep " " (
    text: lib.replaceStrings [ "%" "$" ] [ "%%" "$$" ] (builtins.toJSON text)
  );
  unit = import ./unit.nix {
    inherit cfg lib pkgs;
    escape = quoted;
  };
in
{
  options = {
    hermesHome = mkOption {
      type = types.strMatching "/.*[^/]";
      default =
        if instance.plain then
          "${host.home.homeDirectory}/.hermes"
        else
          "${first}/profiles/${instance.name}";
      defaultText = lib.literalExpression ''"''${config.home.homeDirectory}/.hermes", or "…/profiles/<name>" below it'';
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
      default = instance.kind != "profiles";
      defaultText = lib.literalMD "true; false in `profiles`";
      description = "Whether the daemon runs; without it there are the settings and the command alone.";
    };

    declaredFile = mkOption {
      type = types.package;
      internal = true;
      readOnly = true;
      description = "`declaredConfig`, once the checks have passed: there is no `system.checks` here.";
    };
  };

  config = {
    home = cfg.hermesHome;
    declaredFile = pkgs.runCommand "hermes-agent-settings.json" { checks = map toString cfg.checks; } ''
      cp ${cfg.declaredConfig} $out
    '';

    parts = lib.toList {
      systemd.user.services = mkIf cfg.gateway.enable {
        ${instance.unit} = {
          Unit = {
            Description = "Hermes agent" + lib.optionalString (!instance.plain) " ${instance.name}";
            StartLimitBurst = 5;
            StartLimitIntervalSec = 300;
            X-Restart-Triggers = [ "${cfg.declaredFile}" ];
          };
          Service =
            unit.fixed
            // lib.mapAttrs (_: mkDefault) (
              unit.defaults
              // {
                # What a user's manager can keep without root; on NixOS the system's service keeps more.
                UMask = "0077";
                NoNewPrivileges = true;
                LockPersonality = true;
                RestrictRealtime = true;
                RestrictSUIDSGID = true;
                RestrictAddressFamilies = [
                  "AF_UNIX"
                  "AF_INET"
                  "AF_INET6"
                  "AF_NETLINK"
                ];
                SystemCallArchitectures = "native";
              }
            )
            // {
              Environment = [
                "PATH=${lib.makeBinPath unit.path}"
              ]
              ++ lib.mapAttrsToList (name: value: builtins.toJSON "${name}=${value}") (
                unit.environment // { HERMES_DECLARED_CONFIG = "${cfg.declaredFile}"; }
              );
            };
          Install.WantedBy = [ "default.target" ];
        };
      };
    };
  };
}
