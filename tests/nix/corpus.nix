# Published plugins packed as nixpkgs packs them: one store path for each distribution, what they share shared with the
# agent. `sites`: [ { name, site, distributions } ], as test_corpus.py writes it.
{
  lib,
  pkgs,
  fixtures,
  host',
  sites,
}:
let
  ours = pkgs.python3.pkgs;
  theirs = lib.foldl' (
    all: each: lib.mapAttrs (_: d: d // { inherit (each) site; }) each.distributions // all
  ) { } sites;
  setOf =
    found:
    let
      set = builtins.mapAttrs (name: d: ours.fromSite set d.site name d) found // ours;
    in
    set;
  set = setOf theirs;
  plugins = map (each: set.${each.name}) sites;

  # The same set once more, with other store paths: what two copies of nixpkgs come to.
  second = setOf (lib.mapAttrs (_: d: d // { digest = "again"; }) theirs);

  named =
    distribution: name:
    pkgs.runCommand "source" { } ''
      mkdir -p $out/${name}
      touch $out/${name}/__init__.py
      printf '[project]\nname = "%s"\nversion = "1.0"\n' ${distribution} > $out/pyproject.toml
    '';
  package =
    distribution: name: dependencies:
    ours.buildPythonPackage {
      pname = distribution;
      version = "1.0";
      pyproject = true;
      src = named distribution name;
      build-system = [ ours.setuptools ];
      inherit dependencies;
    };
  directory =
    name: body:
    pkgs.runCommand "source"
      {
        inherit body;
        passAsFile = [ "body" ];
      }
      ''
        mkdir $out
        printf 'name: ${name}\nversion: 1.0.0\n' > $out/plugin.yaml
        cp $bodyPath $out/__init__.py
      '';
  tool =
    name: tool:
    directory name ''
      def register(ctx):
          schema = {"name": "${tool}", "description": "x", "parameters": {"type": "object", "properties": {}}}
          ctx.register_tool("${tool}", "${name}", schema, lambda args, **kwargs: "{}")
    '';
  command =
    name: command:
    directory name ''
      def register(ctx):
          ctx.register_command("${command}", lambda args: "done", "x")
    '';
  # One of them with something else in place of a dependency.
  withOther =
    name: dependency:
    let
      changed = set // {
        ${dependency} = package dependency (lib.replaceStrings [ "-" ] [ "_" ] dependency) [ ];
      };
    in
    ours.fromSite changed theirs.${name}.site name theirs.${name};
  with' =
    services:
    host' {
      services = {
        plugins.checkImports = true;
      }
      // services;
    };
in
{
  together = with' { extraPythonPackages = plugins; };

  refused = lib.mapAttrs (_: services: (with' services).toplevel) {
    same-package-twice = {
      extraPythonPackages = [
        set.atbash-hermes-plugin
        second.agento11y-hermes
      ];
    };
    same-import-name = {
      extraPythonPackages = plugins ++ [ (package "agentguard-copy" "agentguard_spend_hermes" [ ]) ];
    };
    same-plugin-name = {
      extraPythonPackages = plugins;
      extraPlugins = [ (directory "agento11y" "def register(ctx): pass\n") ];
    };
    same-tool = {
      extraPythonPackages = plugins;
      extraPlugins = [ (tool "mine" "ssh_terminal") ];
    };
    same-command = {
      extraPythonPackages = plugins;
      extraPlugins = [ (command "mine" "agentguard") ];
    };
    missing-package = {
      extraPythonPackages = [
        (ours.fromSite set theirs.hermes-ssh.site "hermes-ssh" (
          theirs.hermes-ssh // { dependencies = [ ]; }
        ))
      ];
    };
    version-out-of-range = {
      extraPythonPackages = [ (withOther "agentguard-spend-hermes" "agentguard-spend") ];
    };
  };
}
