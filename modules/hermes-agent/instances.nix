# Several agents on one host. The options of an instance are files that know nothing of the host's other options:
# functions of { config, derived, host, instance, lib, options, pkgs, utils, … }, where `config` and `options` are the
# instance's own, `derived` is what follows from them (./derived.nix), `host` is the configuration of the host, and
# `instance` the names of ./names.nix.
#
# The plain options are the instance `default`. What an instance adds to the host stands in its `parts`.
{ lib }:
let
  inherit (lib) mkDefault mkOption types;
  names = import ./names.nix { inherit lib; };
  gone = import ./upstream.nix { inherit lib; };
  place = [
    "services"
    "hermes-agent"
  ];

  # plain :: files -> module
  # The options of the files as services.hermes-agent.<option>.
  plain =
    files:
    {
      config,
      options,
      lib,
      pkgs,
      utils,
      ...
    }:
    let
      arguments = {
        config = config.services.hermes-agent;
        options = options.services.hermes-agent;
        host = config;
        instance = names.default;
        inherit lib pkgs utils;
      };
      derived = import ./derived.nix {
        inherit (arguments)
          config
          host
          instance
          lib
          pkgs
          ;
      };
      of =
        file:
        let
          it = import file (arguments // { inherit derived; });
        in
        {
          _file = toString file;
          options.services.hermes-agent = it.options or { };
          config.services.hermes-agent = it.config or { };
        };
    in
    {
      imports = map of files;
    };

  # The same files as a submodule, for each name.
  named =
    {
      files,
      kind,
      arguments,
      more,
    }:
    types.attrsOf (
      types.submoduleWith {
        shorthandOnlyDefinesConfig = true;
        specialArgs = arguments;
        modules = files ++ gone [ ] ++ more ++ [ (identity kind) ];
      }
    );

  identity =
    kind:
    {
      config,
      host,
      lib,
      name,
      pkgs,
      ...
    }:
    let
      instance = names.of kind name;
    in
    {
      _module.args = {
        inherit instance;
        derived = import ./derived.nix {
          inherit
            config
            host
            instance
            lib
            pkgs
            ;
        };
      };
    };

  known = instance: each: each // { inherit instance; };
in
{
  # all :: config of services.hermes-agent -> [ instance ]
  # Those that are enabled, each with its names as `instance`.
  all =
    cfg:
    lib.filter (each: each.enable) (
      [ (known names.default cfg) ]
      ++ lib.concatMap (kind: lib.mapAttrsToList (name: known (names.of kind name)) cfg.${kind}) [
        "instances"
        "profiles"
      ]
    );

  # assertions :: instance -> [ assertion ]
  # The removed options know their own name alone.
  assertions =
    { assertions, instance, ... }:
    map (
      each:
      each
      // {
        message =
          lib.optionalString (
            !instance.plain && lib.hasPrefix "The option definition" each.message
          ) "${instance.option}: "
          + each.message;
      }
    ) assertions;

  # module :: { files, profileFiles, arguments } -> module
  # profileFiles: further files of a profile, which say whether it is enabled.
  # arguments: what the files are given beside `host`: a function of the arguments of a module.
  module =
    {
      files,
      profileFiles,
      arguments,
    }:
    {
      config,
      lib,
      pkgs,
      utils,
      ...
    }:
    let
      cfg = config.services.hermes-agent;
      given = {
        host = config;
      }
      // arguments { inherit pkgs utils; };
      # What upstream's profiles have in common with each other.
      common = {
        package = mkDefault cfg.package;
        inherit (cfg) extraPackages extraPythonPackages extraDependencyGroups;
      };
    in
    {
      imports = [ (plain files) ] ++ gone place;

      options.services.hermes-agent = {
        instances = mkOption {
          type = named {
            inherit files;
            kind = "instances";
            arguments = given;
            more = [ { enable = mkDefault true; } ];
          };
          default = { };
          visible = "shallow";
          example = lib.literalExpression ''
            {
              alice = {
                settings.model.default = "anthropic/claude-opus-4.6";
                credentials.OPENROUTER_API_KEY = "/run/secrets/alice-openrouter";
              };
              ops = { settings.server.port = 8650; extraPlugins = [ ./plugins/pager ]; };
            }
          '';
          description = ''
            Further agents of this host by name, each with all options of this page: a unit `hermes-agent-<name>`, a user,
            a home, credentials, plugins and a command `hermes-<name>` of its own. The options outside of `instances` are
            those of the instance `default`. An instance is enabled by being declared; it serves HTTP where
            `settings.server.port` is set. A port, user, group or directory that two of them have is refused.
          '';
        };

        profiles = mkOption {
          type = named {
            inherit files;
            kind = "profiles";
            arguments = given;
            more = [ common ] ++ profileFiles;
          };
          default = { };
          visible = "shallow";
          example = lib.literalExpression ''{ research = { gateway.enable = true; settings.model.default = "…"; }; }'';
          description = ''
            Instances as upstream's module declares them: with `gateway.enable`, and with `package`, `extraPackages`,
            `extraPythonPackages` and `extraDependencyGroups` of the plain options. New ones go to `instances`.
          '';
        };
      };
    };
}
