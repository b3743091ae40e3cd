# The distribution `hermes-agent` as a module of one Python package set, for `python.withPackages`
# and as the base of ./package.nix. Call it with the set: `python3Packages.callPackage`.
#
# meta.homepage and meta.changelog are for who packages it: this tree does not know where it is published.
{
  lib,
  buildPythonPackage,
  callPackage,
  python,
  setuptools,
  versionCheckHook ? null,
  ahocorasick-rs,
  aiohttp,
  certifi,
  cronsim,
  detect-secrets,
  httpx,
  jsonschema,
  markdown-it-py,
  # The extra of that name: a setting that names its speech or images has to run once it builds.
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

  # Packages that the set does not have, for optional-dependencies: those of ./python.
  otherPackages ? { },
}:
let
  # Nothing but what is installed.
  source = import ./source.nix { inherit lib; } {
    name = "hermes-agent-source";
    tops = [
      "hermes"
      "plugins"
      "docs"
      "packaging"
      "pyproject.toml"
      "setup.py"
      "README.md"
      "SECURITY.md"
      "CHANGELOG.md"
      "CONTRIBUTING.md"
      "LICENSE"
    ];
    without = "|\\.egg-info|/docs/.*\\.py";
  };
in
buildPythonPackage (finalAttrs: {
  pname = "hermes-agent";
  version = lib.head (
    builtins.match ".*__version__ = \"([^\"]+)\".*" (
      builtins.readFile ../hermes/hermes_agent/__init__.py
    )
  );
  pyproject = true;
  src = source;

  strictDeps = true;
  __structuredAttrs = true;

  build-system = [
    setuptools
    shtab
  ];

  # nixpkgs' releases are ahead of these ranges, or behind them (docs/nixos/nixpkgs.md); the build runs the agent.
  pythonRelaxDeps = [
    "ahocorasick-rs"
    "openai"
    "publicsuffixlist"
    "rich"
    "ruamel-yaml"
    "shtab"
    "tree-sitter"
    "tree-sitter-bash"
  ];

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
  ]
  ++ finalAttrs.passthru.optional-dependencies.service;

  # Every group that upstream names, and every extra of pyproject.toml.
  optional-dependencies =
    import ./groups.nix { inherit lib; } { packages = otherPackages // python.pkgs; }
    // {
      service = lib.optional (systemd-python != null) systemd-python;
    };

  pythonImportsCheck = [ "hermes_agent" ];

  # The suite runs in a derivation of its own, so that a change of the tests does not build the agent again.
  nativeCheckInputs = lib.optional (versionCheckHook != null) versionCheckHook;
  passthru.tests.pytest = callPackage ./library-tests.nix { hermes-agent = finalAttrs.finalPackage; };

  meta = {
    description = "LLM agent that lives on a machine as a system service";
    longDescription = ''
      A daemon that answers on the terminal, over HTTP and on chat platforms, and acts with tools. Plugins can add every
      part of it. On NixOS the build starts the daemon with its plugins and settings, and refuses what would not work.
    '';
    license = lib.licenses.mit;
    sourceProvenance = [ lib.sourceTypes.fromSource ];
    maintainers = [ ];
    mainProgram = "hermes";
    platforms = lib.platforms.linux;
  };
})
