# Hosts that must not build; refused/<name>.expected has the whole text that says why.
{ lib, pkgs, fixtures }:
let
  inherit (fixtures) plugin pythonPackage pythonPackageOf;
in
{
  # ── plugins ───────────────────────────────────────────────────────────
  broken-plugin = { extraPlugins = [ (plugin "raises") ]; };
  import-error = { extraPlugins = [ (plugin "imports-missing") ]; };
  same-name = { extraPlugins = [ (plugin "twin-a") (plugin "twin-b") ]; };
  same-name-as-package = {
    extraPlugins = [ (plugin "hello") ];
    extraPythonPackages = [ (pythonPackage "hello-package" "1.0.0" [ ]) ];
  };
  same-tool = { extraPlugins = [ (plugin "hello") (plugin "hello-again") ]; };
  same-plugin-twice = { extraPlugins = [ (plugin "hello") (plugin "hello") ]; };
  no-manifest = { extraPlugins = [ (plugin "no-manifest") ]; };
  manifest-one-level-down = { extraPlugins = [ (plugin "nested") ]; };
  invalid-manifest = { extraPlugins = [ (plugin "bad-manifest") ]; };
  nameless-manifest = { extraPlugins = [ (plugin "nameless") ]; };
  unmet-requires-env = { extraPlugins = [ (plugin "needs-key") ]; };
  enabled-but-nowhere = { settings.plugins.enabled = [ "hello" "telescope" ]; extraPlugins = [ (plugin "hello") ]; };
  enabled-but-misspelled = { settings.plugins.enabled = [ "helo" ]; extraPlugins = [ (plugin "hello") ]; };

  # ── Python packages ───────────────────────────────────────────────────
  missing-dependency = { extraPythonPackages = [ (pythonPackage "weather" "1.0.0" [ ]) ]; };
  two-versions = { extraPythonPackages = [ fixtures.weather fixtures.leaf2 ]; };
  shadows-core = { extraPythonPackages = [ (pythonPackage "shadow" "1.0.0" [ ]) ]; };
  mixed-interpreters = {
    extraPythonPackages = [ fixtures.leaf1 (pythonPackageOf pkgs.python310Packages "weather" "1.0.0" [ ]) ];
  };
  dependency-of-other-interpreter = {
    extraPythonPackages = [ (pythonPackage "weather" "1.0.0" [ (pythonPackageOf pkgs.python310Packages "leaf" "1.0.0" [ ]) ]) ];
  };
  not-a-python-package = { extraPythonPackages = [ pkgs.jq ]; };

  # ── settings ──────────────────────────────────────────────────────────
  misspelled-setting = { settings.modle.default = "test/model"; };
  misspelled-setting-below = { settings.approvals.mod = "manual"; };
  unknown-provider = { settings.model.provider = "opnrouter"; };
  unknown-platform-of-plugins = { settings.platforms.hallo.enabled = true; extraPlugins = [ (plugin "hello") ]; };
  unknown-group-of-hosts = { settings.network.hosts = [ "group:pyton" ]; };
  unknown-toolset = { settings.agent.disabled_toolsets = [ "treminal" ]; };
  network-that-is-none = { settings.terminal.network = "hostss"; };
  paths-as-a-text = { settings.terminal.sandbox_paths = "/srv/manuals"; };
  path-that-is-relative = { settings.terminal.writable_paths = [ "reports" ]; };
  size-below-nothing = { settings.terminal.sandbox_tmp_mb = -1; };
  wrong-type = { settings.agent.max_turns = "ninety"; };
  wrong-type-of-free-setting = { settings.compression.threshold = "half"; };
  configfile-and-settings = { configFile = ../data/config/broken/above-range.yaml; settings.agent.max_turns = 3; };
  broken-configfile = { configFile = ./broken.yaml; };
  enabled-and-disabled = { settings.plugins = { enabled = [ "hello" ]; disabled = [ "hello" ]; }; extraPlugins = [ (plugin "hello") ]; };
  unknown-argument = { extraArgs = [ "--no-such-flag" ]; };
  unknown-group = { extraDependencyGroups = [ "mesaging" ]; };
  group-without-package = { extraDependencyGroups = [ "modal" ]; };
  unknown-option = { setings = { }; };

  # ── secrets and state ─────────────────────────────────────────────────
  secret-in-store = { environmentFiles = [ "${plugin "hello"}/plugin.yaml" ]; };
  secret-in-environment = { environment.OPENAI_API_KEY = "sk-test-0123456789abcdef"; };
  secret-in-settings = { settings.model.api_key = "sk-test-0123456789abcdef"; };
  state-everywhere = { stateDir = "/var/lib"; };
  credential-without-a-name = { credentials."open-router" = "/run/secrets/openrouter"; };
  credential-in-environment-as-well = { credentials.WEATHER_REGION = "/run/secrets/region"; environment.WEATHER_REGION = "eu"; };
  environment-of-the-module = { environment.HERMES_HOME = "/srv/hermes"; };
  authfile-in-store = { authFile = "${plugin "hello"}/plugin.yaml"; };
  overwrite-without-authfile = { authFileForceOverwrite = true; };
  document-outside = { documents."../../etc/motd" = "x"; };
  document-absolute = { hermesHomeFiles."/etc/motd" = "x"; };
  home-file-of-the-agent = { hermesHomeFiles = { ".env" = "A=b"; "config.yaml" = "{}"; }; };
  home-file-as-plugin = { hermesHomeFiles."plugins/mine/plugin.yaml" = "name: mine"; };

  # ── MCP servers ───────────────────────────────────────────────────────
  mcp-both = { mcpServers.wiki = { command = "wiki"; url = "https://wiki.example.org/mcp"; }; };
  mcp-neither = { mcpServers.wiki.timeout = 5; };
  mcp-arguments-of-url = { mcpServers.wiki = { url = "https://wiki.example.org/mcp"; args = [ "-y" ]; }; };
  mcp-headers-of-command = { mcpServers.wiki = { command = "wiki"; headers.Authorization = "Bearer \${TOKEN}"; }; };
  mcp-included-and-excluded = { mcpServers.wiki = { command = "wiki"; tools = { include = [ "read" ]; exclude = [ "read" ]; }; }; };
  mcp-log-level = { mcpServers.wiki = { command = "wiki"; sampling.log_level = "loud"; }; };

  model-without-weights = { localModel.enable = true; };

  # ── the package, and what is not here ─────────────────────────────────
  package-of-somebody-else = { package = pkgs.jq; };
  tool-taken-over = { extraPlugins = [ (plugin "takes-over") ]; };
  removed-backend = { backend.mode = "dashboard"; };
  removed-profiles = { profiles.second = { }; };
  removed-option = { container.enable = true; };

  # ── what commands are shown ───────────────────────────────────────────
  path-that-systemd-misreads = {
    tools.readWritePaths = [ "/srv/our data" ];
    settings.terminal.sandbox_paths = [ "/srv/a:b" "/srv/manuals" ];
  };
}
