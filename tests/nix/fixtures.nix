# Plugins and Python packages that the configurations of the tests are made of.
{ lib, pkgs }:
let
  inherit (pkgs.python3.pkgs) buildPythonPackage setuptools;
in
rec {
  # A directory plugin, fetched as people fetch them: every source is called `source`.
  plugin = name: builtins.path { path = ./plugins + "/${name}"; name = "source"; };

  # One of many.
  numbered = n: pkgs.runCommand "source" { } ''
    mkdir $out
    printf 'name: plugin-${n}\nversion: 1.0.0\nprovides_tools: [tool_${n}]\n' > $out/plugin.yaml
    sed 's/hello/tool_${n}/g' ${./plugins/hello/__init__.py} > $out/__init__.py
  '';

  pythonPackageOf = packages: directory: version: dependencies:
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
