{
  lib,
  config,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  anything = mkOption {
    type = types.attrsOf types.anything;
    default = { };
  };
  unitValue =
    with types;
    let
      scalar = oneOf [
        bool
        int
        float
        str
        path
        package
      ];
    in
    nullOr (either scalar (listOf scalar));
  unitSection = mkOption {
    type = types.attrsOf unitValue;
    default = { };
  };
  strings = mkOption {
    type = types.listOf types.str;
    default = [ ];
  };
  # Of every kind of unit.
  common = {
    description = mkOption {
      type = types.str;
      default = "";
    };
    documentation = strings;
    wantedBy = strings;
    wants = strings;
    requires = strings;
    after = strings;
    before = strings;
    startLimitBurst = mkOption {
      type = types.nullOr types.int;
      default = null;
    };
    startLimitIntervalSec = mkOption {
      type = types.nullOr types.int;
      default = null;
    };
    restartIfChanged = mkOption {
      type = types.bool;
      default = true;
    };
    reloadTriggers = mkOption {
      type = types.listOf types.unspecified;
      default = [ ];
    };
    restartTriggers = mkOption {
      type = types.listOf types.unspecified;
      default = [ ];
    };
    unitConfig = unitSection;
  };
  unitFile = name: text: {
    inherit text;
    unit = pkgs.writeTextFile {
      name = "unit-${lib.replaceStrings [ "@" ] [ "-at" ] name}";
      inherit text;
      destination = "/${name}";
    };
  };

  # What systemd-tmpfiles and systemd-sysusers are given.
  tmpfiles = lib.concatLines (
    lib.concatLists (
      lib.mapAttrsToList (
        path: rules:
        lib.mapAttrsToList (
          type: r: "${type} ${path} ${r.mode or "-"} ${r.user or "-"} ${r.group or "-"} - ${r.argument or ""}"
        ) rules
      ) (homes // lib.concatMapAttrs (_: rules: rules) config.systemd.tmpfiles.settings)
    )
  );
  sysusers = lib.concatLines (
    map (name: "g ${name} -") (lib.attrNames config.users.groups ++ lib.attrNames normal)
    ++ lib.concatLists (
      lib.mapAttrsToList (
        name: u:
        [ "u ${name} - - ${home name u}" ]
        ++ map (group: "m ${name} ${group}") (lib.optional (u ? group) u.group ++ u.extraGroups or [ ])
      ) config.users.users
    )
    ++ lib.concatLists (
      lib.mapAttrsToList (group: g: map (user: "m ${user} ${group}") g.members or [ ]) config.users.groups
    )
  );
  normal = lib.filterAttrs (_: u: u.isNormalUser or false) config.users.users;
  home = name: u: u.home or "/home/${name}";
  homes = lib.mapAttrs' (
    name: u:
    lib.nameValuePair (home name u) {
      d = {
        user = name;
        group = name;
        mode = "0700";
      };
    }
  ) normal;
  failed = map (a: a.message) (lib.filter (a: !a.assertion) config.assertions);
  showWarnings = lib.flip (lib.foldl' (value: text: lib.warn text value)) config.warnings;
in
{
  options = {
    assertions = mkOption {
      type = types.listOf types.unspecified;
      default = [ ];
    };
    warnings = strings;
    nixpkgs.hostPlatform = mkOption { type = types.str; };
    users.users = anything;
    users.groups = anything;
    environment.systemPackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
    };
    environment.etc = anything;
    networking = anything;
    boot = anything;
    # Of sops-nix, as far as hosts of the tests read it.
    sops = mkOption {
      type = types.raw;
      default = { };
    };
    fileSystems = anything;
    system = {
      stateVersion = mkOption {
        type = types.str;
        default = "26.05";
      };
      checks = mkOption {
        type = types.listOf types.package;
        default = [ ];
      };
      activationScripts = anything;
      build = mkOption {
        type = types.attrsOf types.raw;
        default = { };
      };
    };
    systemd.tmpfiles.settings = anything;
    systemd.units = mkOption {
      type = types.attrsOf types.raw;
      default = { };
    };
    systemd.services = mkOption {
      default = { };
      type = types.attrsOf (
        types.submodule {
          options = common // {
            path = mkOption {
              type = types.listOf (types.either types.package types.str);
              default = [ ];
            };
            environment = mkOption {
              type = types.attrsOf (
                types.nullOr (
                  types.oneOf [
                    types.str
                    types.path
                    types.package
                  ]
                )
              );
              default = { };
            };
            serviceConfig = unitSection;
          };
        }
      );
    };
    systemd.sockets = mkOption {
      default = { };
      type = types.attrsOf (
        types.submodule {
          options = common // {
            socketConfig = unitSection;
          };
        }
      );
    };
  };

  config.systemd.units =
    lib.mapAttrs' (
      name: service:
      lib.nameValuePair "${name}.service" (
        unitFile "${name}.service" (import ./unit.nix { inherit lib pkgs; } { inherit service; })
      )
    ) config.systemd.services
    // lib.mapAttrs' (
      name: socket:
      lib.nameValuePair "${name}.socket" (
        unitFile "${name}.socket" (import ./unit.nix { inherit lib pkgs; } { inherit socket; })
      )
    ) config.systemd.sockets;

  # The commands of everybody, `sw` in NixOS' own.
  config.system.build.sw = pkgs.runCommand "system-path" { } ''
    mkdir -p $out/bin
    ${lib.concatLines (
      map (package: "ln -s ${package}/bin/* $out/bin/") config.environment.systemPackages
    )}
  '';

  config.system.build.toplevel =
    if failed != [ ] then
      throw "\nFailed assertions:\n${lib.concatMapStringsSep "\n" (m: "- ${m}") failed}"
    else
      showWarnings (
        pkgs.runCommand "nixos-system" { checks = map toString config.system.checks; } ''
          mkdir $out
          ${lib.concatLines (lib.mapAttrsToList (name: u: "cp ${u.unit}/${name} $out/") config.systemd.units)}
          cp ${pkgs.writeText "tmpfiles.conf" tmpfiles} $out/tmpfiles.conf
          cp ${pkgs.writeText "sysusers.conf" sysusers} $out/sysusers.conf
          cp ${
            pkgs.writeText "activate" (
              lib.concatLines (
                lib.mapAttrsToList (_: script: script.text or script) config.system.activationScripts
              )
            )
          } $out/activate
          ${lib.concatLines (
            lib.mapAttrsToList (
              name: file: "install -D -m 0644 ${file.source} $out/etc/${name}"
            ) config.environment.etc
          )}
        ''
      );
}
