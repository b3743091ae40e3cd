# An instance in a home: where it is, and its unit of the user's own manager.
{
  config,
  derived,
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
    inherit
      cfg
      derived
      lib
      pkgs
      ;
    escape = quoted;
  };
  # The settings, once the checks have passed: there is no `system.checks` here.
  declaredFile =
    pkgs.runCommand "hermes-agent-settings.json" { checks = map toString derived.checks; }
      ''
        cp ${derived.declaredConfig} $out
      '';
  # `hermes` in the home of another instance than `default`.
  command = pkgs.writeShellScriptBin instance.command ''
    export HERMES_HOME=${lib.escapeShellArg derived.home} HERMES_DECLARED_CONFIG=${declaredFile}
    exec ${cfg.finalPackage}/bin/hermes "$@"
  '';
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
  };

  config = {
    parts = lib.toList {
      home.packages = mkIf host.programs.hermes-agent.enable [
        (if instance.plain then cfg.finalPackage else command)
      ];
      home.sessionVariables = mkIf (instance.plain && host.programs.hermes-agent.enable) {
        HERMES_HOME = derived.home;
        HERMES_DECLARED_CONFIG = "${declaredFile}";
      };
      # The user sees, while switching, what the checks let pass.
      home.activation."${instance.unit}-warnings" = mkIf (derived.startCheck != null) (
        import ./warnings.nix {
          inherit instance;
          file = derived.startCheck;
        }
      );

      systemd.user.services = mkIf cfg.gateway.enable {
        ${instance.unit} = {
          Unit = {
            Description = "Hermes agent" + lib.optionalString (!instance.plain) " ${instance.name}";
            StartLimitBurst = 5;
            StartLimitIntervalSec = 300;
            X-Restart-Triggers = [ "${declaredFile}" ];
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
                unit.environment // { HERMES_DECLARED_CONFIG = "${declaredFile}"; }
              );
            };
          Install.WantedBy = [ "default.target" ];
        };
      };
    };
  };
}
