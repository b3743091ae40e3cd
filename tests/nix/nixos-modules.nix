# The module inside the whole NixOS module set (about 1,900 modules), without nixpkgs' packages: ours are the stand-ins of
# this folder, and each other name that a module mentions is an empty derivation.
#
#   --arg nixos PATH         nixpkgs' folder `nixos`
#   --arg library PATH       nixpkgs' folder `lib`
#   --argstr names "a b …"   the names of packages that the modules mention
#   --argstr hostSite DIR    as for default.nix
{
  nixos,
  library,
  names,
  hostSite,
}:
let
  lib = import library;
  mine = (import ./default.nix { inherit lib hostSite; }).pkgs;
  system = builtins.currentSystem;

  imagined =
    name:
    (derivation {
      inherit name system;
      builder = "/bin/bash";
      args = [
        "-c"
        "mkdir -p $out/bin"
      ];
    })
    // {
      pname = name;
      version = "1";
      meta.mainProgram = name;
      passthru = { };
      override = _: imagined name;
      overrideAttrs = _: imagined name;
    }
    // lib.genAttrs [ "bin" "dev" "doc" "lib" "man" "su" ] (
      output:
      derivation {
        name = "${name}-${output}";
        inherit system;
        builder = "/bin/bash";
        args = [
          "-c"
          "mkdir -p $out/bin"
        ];
      }
    );
  makes = name: _: imagined name;
  makesNamed = arguments: imagined (arguments.name or "made");
  # The shells of users are named by a variable.
  set = lib.genAttrs (
    [
      "fish"
      "xonsh"
      "zsh"
    ]
    ++ lib.filter (name: name != "") (lib.splitString " " names)
  ) imagined;

  formats =
    lib.genAttrs
      [
        "configobj"
        "elixirConf"
        "gitIni"
        "hcl1"
        "hocon"
        "ini"
        "iniWithGlobalSection"
        "javaProperties"
        "json"
        "keyValue"
        "libconfig"
        "lua"
        "nixConf"
        "php"
        "plist"
        "pythonVars"
        "systemd"
        "toml"
        "xml"
        "yaml"
        "yaml_1_1"
        "yaml_1_2"
        "cdn"
        "bindConf"
      ]
      (
        _: _: {
          type = lib.types.anything;
          lib.types = { };
          generate = name: _: imagined (lib.strings.sanitizeDerivationName name);
        }
      );
  platform = lib.systems.elaborate system;
  kernel = imagined "linux" // {
    version = "6.12";
    modDirVersion = "6.12";
    features = { };
    config = lib.genAttrs [ "isYes" "isEnabled" "isModule" "isSet" ] (_: _: true);
    kernelAtLeast = _: true;
    kernelOlder = _: false;
  };
  kernels = {
    inherit kernel;
    extend = _: kernels;
    kernelAtLeast = _: true;
    kernelOlder = _: false;
    nvidiaPackages = imagined "nvidia";
  };

  pkgs =
    set
    // {
      path = nixos + "/..";
      config = { };
      overlays = [ ];
      nixosTests = { };
      runtimeShell = "/bin/bash";
      linuxPackages = kernels;
      linuxPackages_latest = kernels;
      linuxPackagesFor = _: kernels;
      buildPackages = set;
      pkgsi686Linux = set;
      pkgsStatic = set // {
        callPackage = path: _: imagined (baseNameOf path);
      };
      aspellDicts = { };
      shadow = imagined "shadow";
    }
    // lib.mapAttrs (
      _: each: if lib.isDerivation each then { overrideAttrs = _: each; } // each else each
    ) mine
    // {
      inherit lib system;
      formats = formats // mine.formats;
      stdenv =
        lib.filterAttrs (name: _: lib.hasPrefix "is" name) platform
        // (mine.stdenv or { })
        // {
          hostPlatform = platform;
          buildPlatform = platform;
          targetPlatform = platform;
        };
      writeScript = name: text: mine.writeText name text;
      writeScriptBin = makes;
      writeTextFile = makesNamed;
      writeShellScriptBin =
        name: text:
        let
          script = mine.writeShellScriptBin name text;
        in
        script // { overrideAttrs = _: script; };
      writeTextDir = path: _: imagined (baseNameOf path);
      writeShellApplication = makesNamed;
      concatText = makes;
      linkFarm = makes;
      symlinkJoin = makesNamed;
      buildEnv = makesNamed;
      makeDesktopItem = makesNamed;
      makeFontsConf = makesNamed;
      makeDBusConf = makesNamed;
      substitute = makesNamed;
      substituteAll = makesNamed;
      replaceVars = path: _: imagined (baseNameOf path);
      replaceVarsWith = makesNamed;
      runCommandLocal =
        name: _: _:
        imagined name;
      runCommandCC =
        name: _: _:
        imagined name;
    };

  system' =
    services:
    import (nixos + "/lib/eval-config.nix") {
      inherit lib;
      system = null;
      specialArgs = { inherit pkgs; };
      modules = [
        {
          disabledModules = [ "misc/nixpkgs.nix" ];
          options.nixpkgs =
            lib.genAttrs
              [
                "config"
                "overlays"
                "hostPlatform"
                "buildPlatform"
                "system"
                "localSystem"
                "crossSystem"
                "pkgs"
              ]
              (
                name:
                lib.mkOption {
                  type = lib.types.anything;
                  default =
                    if name == "overlays" then
                      [ ]
                    else if name == "system" then
                      system
                    else if name == "hostPlatform" then
                      platform
                    else
                      { };
                }
              );
        }
        ../../modules/hermes-agent
        {
          _file = "configuration.nix";
          system.stateVersion = "25.05";
          fileSystems."/" = {
            device = "none";
            fsType = "tmpfs";
          };
          boot.loader.grub.enable = false;
          documentation.enable = false;
          # It compiles a program.
          environment.stub-ld.enable = false;
          services.hermes-agent = {
            enable = true;
          }
          // services;
        }
      ];
    };
  # The page of the manual, as NixOS collects it.
  manual =
    map
      (option: {
        inherit (option) name type;
        description = option.description or "";
      })
      (
        lib.filter (option: option.visible && !option.internal) (
          lib.optionAttrSetToDocList (system' { }).options.services.hermes-agent
        )
      );

  fixtures = import ./fixtures.nix {
    inherit lib;
    pkgs = mine;
  };

  # What of a host is ours: as NixOS renders it.
  shown =
    services:
    let
      inherit (system' services) config options;
      ours = lib.filterAttrs (name: _: lib.hasPrefix "hermes" name);
    in
    {
      units = lib.mapAttrs (_: unit: unit.text) (ours config.systemd.units);
      failed = map (each: each.message) (lib.filter (each: !each.assertion) config.assertions);
      # Those of other modules ask for programs that are not there.
      warnings = lib.concatMap (
        each: lib.optionals (lib.hasInfix "/hermes-agent/" (toString each.file)) each.value
      ) options.warnings.definitionsWithLocations;
      user =
        let
          user = config.users.users.${services.user or "hermes"} or null;
        in
        if user == null then null else { inherit (user) group home isSystemUser; };
      members = config.users.groups.hermes-work.members or null;
      tmpfiles = config.systemd.tmpfiles.settings."10-hermes-agent" or { };
      etc = lib.attrNames (ours config.environment.etc);
      checks = map (check: check.name) (
        lib.filter (check: lib.hasPrefix "hermes" check.name) config.system.checks
      );
      activation =
        let
          script = config.system.activationScripts.hermes-agent-warnings or "";
        in
        script.text or script;
    };
in
{
  inherit manual;
  hosts = lib.mapAttrs (_: shown) (
    import ./systems.nix {
      inherit lib fixtures;
      pkgs = mine;
    }
  );
}
