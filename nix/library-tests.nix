# The quick part of the suite, against the installed agent: `library.tests.pytest`.
{
  lib,
  buildPythonPackage,
  hermes-agent,
  hypothesis,
  pytest-timeout,
  pytestCheckHook,
}:
buildPythonPackage {
  pname = "hermes-agent-tests";
  inherit (hermes-agent) version;
  format = "other";

  src = lib.cleanSourceWith {
    name = "hermes-agent-tests-source";
    src = ../.;
    filter =
      path: _:
      let
        top = lib.head (lib.splitString "/" (lib.removePrefix "${toString ../.}/" path));
      in
      lib.elem top [
        "docs"
        "pyproject.toml"
        "tests"
      ]
      && builtins.match ".*(__pycache__|\\.pyc)" path == null;
  };

  dontBuild = true;
  installPhase = "touch $out";

  nativeCheckInputs = [
    hermes-agent
    hypothesis
    pytest-timeout
    pytestCheckHook
  ];
  enabledTestPaths = [
    "tests/unit/hooks"
    "tests/unit/runtime"
  ];

  meta = {
    description = "Quick part of the suite of hermes-agent";
    inherit (hermes-agent.meta) license platforms;
    maintainers = [ ];
  };
}
