# The module for Home Manager, with the few options of Home Manager that it writes to.
{ lib, pkgs }:
services:
let
  inherit (lib) mkOption types;
  anything = mkOption {
    type = types.attrsOf types.anything;
    default = { };
  };
  evaluated = lib.evalModules {
    modules = [
      ../../modules/home-manager.nix
      {
        options = {
          assertions = mkOption {
            type = types.listOf types.unspecified;
            default = [ ];
          };
          warnings = mkOption {
            type = types.listOf types.str;
            default = [ ];
          };
          home.homeDirectory = mkOption {
            type = types.str;
            default = "/home/someone";
          };
          home.packages = mkOption {
            type = types.listOf types.package;
            default = [ ];
          };
          home.sessionVariables = anything;
          # A text is an entry of Home Manager's graph without an order.
          home.activation = mkOption {
            type = types.attrsOf types.lines;
            default = { };
          };
          systemd.user.services = anything;
        };
        config = {
          _module.args = { inherit pkgs; };
          services.hermes-agent = {
            enable = true;
          }
          // services;
          programs.hermes-agent.enable = true;
        };
      }
    ];
  };
  failed = map (a: a.message) (lib.filter (a: !a.assertion) evaluated.config.assertions);
  show = v: if lib.isBool v then lib.boolToString v else toString v;
  lines = lib.mapAttrsToList (
    key: v: if lib.isList v then map (x: "${key}=${show x}") v else [ "${key}=${show v}" ]
  );
  section = name: attrs: "[${name}]\n" + lib.concatLines (lib.flatten (lines attrs));
  unit = evaluated.config.systemd.user.services.hermes-agent;
in
if failed != [ ] then
  throw (lib.concatMapStringsSep "\n" (m: "- ${m}") failed)
else
  {
    inherit (evaluated) config;
    inherit
      (import ../../modules/hermes-agent/derived.nix {
        config = evaluated.config.services.hermes-agent;
        host = evaluated.config;
        instance = (import ../../modules/hermes-agent/names.nix { inherit lib; }).default;
        inherit lib pkgs;
      })
      startCheck
      ;
    unitNames = lib.attrNames evaluated.config.systemd.user.services;
    unit = pkgs.writeTextFile {
      name = "hermes-agent.service";
      destination = "/hermes-agent.service";
      text = lib.concatMapStringsSep "\n" (name: section name unit.${name}) [
        "Unit"
        "Service"
        "Install"
      ];
    };
  }
