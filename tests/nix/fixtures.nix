# Plugins and Python packages that the configurations of the tests are made of.
{ lib, pkgs }:
let
  inherit (pkgs.python3.pkgs) buildPythonPackage setuptools;
in
rec {
  # The settings of a model that the check need not reach.
  model = {
    provider = "custom";
    default = "scripted";
    base_url = "http://127.0.0.1:8643/v1";
  };

  # A host with these settings.
  host = settings: { settings = lib.recursiveUpdate { inherit model; } settings; };

  # A host that enables one plugin of `troubled`.
  troubledHost =
    name: more:
    lib.recursiveUpdate {
      extraPlugins = troubled;
      plugins.autoEnable = false;
      settings = {
        inherit model;
        plugins.enabled = [ name ];
      };
    } more;

  # A directory plugin, fetched as people fetch them: every source is called `source`.
  plugin =
    name:
    builtins.path {
      path = ./plugins + "/${name}";
      name = "source";
    };

  # One of many.
  numbered =
    n:
    pkgs.runCommand "source" { } ''
      mkdir $out
      printf 'name: plugin-${n}\nversion: 1.0.0\nprovides_tools: [tool_${n}]\n' > $out/plugin.yaml
      sed 's/hello/tool_${n}/g' ${./plugins/hello/__init__.py} > $out/__init__.py
    '';

  # A plugin of one manifest and one `register`.
  written =
    name: manifest: body:
    pkgs.runCommand "source"
      {
        inherit manifest body;
        passAsFile = [
          "manifest"
          "body"
        ];
      }
      ''
        mkdir $out
        { printf 'name: ${name}\nversion: 1.0.0\n'; cat $manifestPath; } > $out/plugin.yaml
        { printf 'def register(ctx):\n'; cat $bodyPath; } > $out/__init__.py
        ${lib.optionalString (name == "other-python") ''
          printf '[project]\nname = "other-python"\nversion = "1.0.0"\nrequires-python = ">=4.0"\n' > $out/pyproject.toml
        ''}
      '';

  # Each loads, and each has something that would never work.
  troubled =
    lib.mapAttrsToList (name: each: written name (each.manifest or "") (each.body or "    pass\n"))
      {
        listens-wrong.body = "    ctx.register_hook('pre_tool_cal', lambda **kwargs: None)\n";
        odd-kind.manifest = "kind: standalon\n";
        later.manifest = "manifest_version: 9\n";
        other-python = { };
        wants-package.manifest = "pip_dependencies: [flux-capacitor>=2]\n";
        wants-version.manifest = "pip_dependencies: [pyyaml>=99]\n";
        odd-schema.body =
          "    schema = {'name': 'odd', 'description': 'x', 'parameters': {'type': 'object', 'properties': {'a': {'type': 'strng'}}}}\n"
          + "    ctx.register_tool('odd', 'odd-schema', schema, lambda args, **kwargs: '{}')\n";
        configured.manifest = ''
          config_schema:
            city: {type: string, description: Where, required: true}
            days: {type: integer, description: How many days, default: 1}
            unit: {type: string, description: Unit, choices: [celsius, fahrenheit], default: celsius}
        '';
      };

  # A plugin whose settings are options.
  schemaOfTyped = {
    city = {
      type = "string";
      description = "Where";
      required = true;
    };
    days = {
      type = "integer";
      description = "How many days";
      default = 1;
    };
    unit = {
      type = "string";
      description = "Unit";
      choices = [
        "celsius"
        "fahrenheit"
      ];
      default = "celsius";
    };
    key = {
      type = "secret";
      description = "Key of the service";
    };
  };
  typed = pkgs.callPackage ../../nix/build-plugin.nix { } {
    pname = "hermes-typed";
    src = ./plugins/typed;
    configSchema = schemaOfTyped;
  };

  pythonPackageOf =
    packages: directory: version: dependencies:
    packages.buildPythonPackage {
      pname = directory;
      inherit version dependencies;
      pyproject = true;
      src = ./packages + "/${directory}";
      build-system = [ packages.setuptools ];
    };
  pythonPackage = pythonPackageOf pkgs.python3Packages;

  # The example of the plugin guide, in our own writing.
  calculator = ../../examples/plugins/calculator;

  leaf1 = pythonPackage "leaf" "1.0.0" [ ];
  leaf2 = pythonPackage "leaf-two" "2.0.0" [ ];
  weather = pythonPackage "weather" "1.0.0" [ leaf1 ];
}
