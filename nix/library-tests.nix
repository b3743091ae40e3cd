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

  src = import ./source.nix { inherit lib; } {
    name = "hermes-agent-tests-source";
    tops = [
      "docs"
      "pyproject.toml"
      "tests"
    ];
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
    "tests/unit/commands"
    "tests/unit/hooks"
    "tests/unit/runtime"
    "tests/unit/sessions"
    "tests/unit/skills"
    "tests/unit/store"
  ];

  meta = {
    description = "Quick part of the suite of hermes-agent";
    inherit (hermes-agent.meta) license platforms;
    maintainers = [ ];
  };
}
