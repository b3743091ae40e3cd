# The distribution `hermes-agent` as a module of one Python package set, for `python.withPackages`
# and as the base of ./package.nix. Call it with the set: `python3Packages.callPackage`.
{
  lib,
  buildPythonPackage,
  setuptools,
  ahocorasick-rs,
  aiohttp,
  certifi,
  cronsim,
  detect-secrets,
  httpx,
  jsonschema,
  markdown-it-py,
  openai,
  prompt-toolkit,
  publicsuffixlist,
  pygments,
  pyyaml,
  # For published plugins that import it without saying so; the agent does not.
  requests,
  rich,
  ruamel-yaml,
  sdnotify,
  shtab,
  tree-sitter,
  tree-sitter-grammars ? { },
  tree-sitter-bash ? tree-sitter-grammars.tree-sitter-bash,
  uvicorn,
  # Structured entries in the journal. Without it the same lines go to stderr.
  systemd-python ? null,
}:
let
  # Nothing but what is installed, so that a change of the tests builds nothing again.
  source = lib.cleanSourceWith {
    name = "hermes-agent-source";
    src = ../.;
    filter = path: _:
      let top = lib.head (lib.splitString "/" (lib.removePrefix "${toString ../.}/" path)); in
      lib.elem top [
        "hermes" "plugins" "docs" "packaging" "pyproject.toml" "setup.py"
        "README.md" "SECURITY.md" "CHANGELOG.md" "CONTRIBUTING.md" "LICENSE"
      ]
      && builtins.match ".*(__pycache__|\\.pyc|\\.egg-info|/docs/.*\\.py)" path == null;
  };
  version = lib.head (builtins.match ".*__version__ = \"([^\"]+)\".*" (builtins.readFile ../hermes/hermes_agent/__init__.py));
  optional-dependencies.service = lib.optional (systemd-python != null) systemd-python;
in
buildPythonPackage {
  pname = "hermes-agent";
  inherit version;
  pyproject = true;
  src = source;

  strictDeps = true;
  __structuredAttrs = true;

  build-system = [ setuptools shtab ];
  dependencies = [
    ahocorasick-rs
    aiohttp
    certifi
    cronsim
    detect-secrets
    httpx
    jsonschema
    markdown-it-py
    openai
    prompt-toolkit
    publicsuffixlist
    pygments
    pyyaml
    requests
    rich
    ruamel-yaml
    sdnotify
    shtab
    tree-sitter
    tree-sitter-bash
    uvicorn
  ] ++ optional-dependencies.service;
  inherit optional-dependencies;

  # nixpkgs may be ahead of, or behind, the ranges of pyproject.toml; the build runs the agent.
  pythonRelaxDeps = true;
  pythonImportsCheck = [ "hermes_agent" ];

  meta = {
    description = "LLM agent that lives on a machine as a system service";
    license = lib.licenses.mit;
    mainProgram = "hermes";
    platforms = lib.platforms.linux;
  };
}
