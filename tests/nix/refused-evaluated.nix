# Hosts that evaluation refuses, in the words of refused/<name>.expected: nothing of them is built.
{
  lib,
  pkgs,
  fixtures,
}:
let
  inherit (fixtures) plugin;
  key = "sk-test-0123456789abcdef";
in
{
  same-plugin-twice = {
    extraPlugins = [
      (plugin "hello")
      (plugin "hello")
    ];
  };
  configfile-and-settings = {
    configFile = ../data/config/broken/above-range.yaml;
    settings.agent.max_turns = 3;
  };
  enabled-and-disabled = {
    settings.plugins = {
      enabled = [ "hello" ];
      disabled = [ "hello" ];
    };
    extraPlugins = [ (plugin "hello") ];
  };
  secret-in-environment = {
    environment.OPENAI_API_KEY = "sk-test-0123456789abcdef";
  };
  secret-in-settings = {
    settings.model.api_key = "sk-test-0123456789abcdef";
  };
  granted-path-with-a-blank = {
    plugins.isolated = [ "hello" ];
    extraPlugins = [ (plugin "hello") ];
    settings.plugins.entries.hello.granted_capabilities = [
      "files.read:/srv/my data"
      "files.write:~/data"
    ];
  };
  state-everywhere = {
    stateDir = "/var/lib";
  };
  credential-without-a-name = {
    credentials."open-router" = "/run/secrets/openrouter";
  };
  credential-in-environment-as-well = {
    credentials.WEATHER_REGION = "/run/secrets/region";
    environment.WEATHER_REGION = "eu";
  };
  environment-of-the-module = {
    environment.HERMES_HOME = "/srv/hermes";
  };
  overwrite-without-authfile = {
    authFileForceOverwrite = true;
  };
  document-outside = {
    documents."../../etc/motd" = "x";
  };
  document-absolute = {
    hermesHomeFiles."/etc/motd" = "x";
  };
  home-file-of-the-agent = {
    hermesHomeFiles = {
      ".env" = "A=b";
      "config.yaml" = "{}";
    };
  };
  home-file-as-plugin = {
    hermesHomeFiles."plugins/mine/plugin.yaml" = "name: mine";
  };
  mcp-both = {
    mcpServers.wiki = {
      command = "wiki";
      url = "https://wiki.example.org/mcp";
    };
  };
  mcp-neither = {
    mcpServers.wiki.timeout = 5;
  };
  mcp-arguments-of-url = {
    mcpServers.wiki = {
      url = "https://wiki.example.org/mcp";
      args = [ "-y" ];
    };
  };
  mcp-headers-of-command = {
    mcpServers.wiki = {
      command = "wiki";
      headers.Authorization = "Bearer \${TOKEN}";
    };
  };
  mcp-included-and-excluded = {
    mcpServers.wiki = {
      command = "wiki";
      tools = {
        include = [ "read" ];
        exclude = [ "read" ];
      };
    };
  };
  model-without-weights = {
    localModel.enable = true;
  };
  package-of-somebody-else = {
    package = pkgs.jq;
  };
  removed-backend = {
    backend.mode = "dashboard";
  };
  removed-option = {
    container.enable = true;
  };
  secret-in-store = {
    environmentFiles = [ "${plugin "hello"}/plugin.yaml" ];
  };
  authfile-in-store = {
    authFile = "${plugin "hello"}/plugin.yaml";
  };
  mcp-log-level = {
    mcpServers.wiki = {
      command = "wiki";
      sampling.log_level = "loud";
    };
  };
  network-that-is-none = {
    settings.terminal.network = "hostss";
  };
  paths-as-a-text = {
    settings.terminal.sandbox_paths = "/srv/manuals";
  };
  size-below-nothing = {
    settings.terminal.sandbox_tmp_mb = -1;
  };
  wrong-type = {
    settings.agent.max_turns = "ninety";
  };
  wrong-type-of-free-setting = {
    settings.compression.threshold = "half";
  };
  unknown-option = {
    setings = { };
  };
  path-that-systemd-misreads = {
    tools.readWritePaths = [ "/srv/our data" ];
    settings.terminal.sandbox_paths = [
      "/srv/a:b"
      "/srv/manuals"
    ];
  };

  # ── secrets, wherever they are ────────────────────────────────────────
  secret-in-mcp-arguments = {
    mcpServers.wiki = {
      command = "bash";
      args = [
        "--token"
        "ghp_0123456789abcdefghij0123456789abcdef"
      ];
    };
  };
  secret-within-an-argument = {
    mcpServers.wiki = {
      command = "bash";
      args = [ "--token=${key}" ];
    };
  };
  secret-in-mcp-header = {
    mcpServers.wiki = {
      url = "https://wiki.example.org/mcp";
      headers.Authorization = "Bearer 0123456789abcdef";
    };
  };
  secret-in-mcp-address = {
    mcpServers.wiki.url = "https://ann:hunter2@wiki.example.org/mcp";
  };
  secret-in-mcp-environment = {
    mcpServers.wiki = {
      command = "bash";
      env.TOKEN = "xoxb-0123456789-abcdef";
    };
  };
  secret-in-proxy = {
    environment.HTTPS_PROXY = "http://ann:hunter2@proxy.example.org:3128";
  };
  secret-in-extra-arguments = {
    extraArgs = [
      "--key"
      key
    ];
  };
  secret-in-provider-headers = {
    settings.providers.own = {
      base_url = "https://api.example.org/v1";
      headers.x-api-key = key;
    };
  };
  secret-of-a-bot = {
    settings.platforms.telegram = {
      enabled = true;
      token = "123456789:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr";
    };
  };
  secret-in-a-list = {
    settings.terminal.unconfined_commands = [
      "curl -H 'Authorization: Bearer abcdefgh12345678' https://example.org"
    ];
  };
  secret-of-the-local-model = {
    localModel = {
      enable = true;
      model = ./README.md;
      extraArgs = [
        "--api-key"
        key
      ];
    };
  };
  private-key-in-environment = {
    environment.SSH_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n";
  };
  secret-of-a-plugin = {
    plugins.settings.hello.token = key;
    extraPlugins = [ (plugin "hello") ];
  };
  secret-in-quick-command = {
    settings.quick_commands.deploy = {
      type = "exec";
      command = "curl https://deploy.example.org -d ${key}";
    };
  };
  secret-in-provider-address = {
    settings.providers.own.base_url = "https://ann:hunter2@api.example.org/v1";
  };
  web-token = {
    environment.SESSION = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
  };
  credential-that-is-relative = {
    credentials.OPENROUTER_API_KEY = "secrets/openrouter";
  };
  environment-file-that-is-relative = {
    environmentFiles = [ "hermes.env" ];
  };

  # ── directories ───────────────────────────────────────────────────────
  work-in-the-state = {
    workingDirectory = "/var/lib/hermes/.hermes/sessions";
  };
  work-is-the-state = {
    workingDirectory = "/var/lib/hermes/.hermes";
  };
  work-with-a-blank = {
    workingDirectory = "/srv/our work";
    tools.sandbox = null;
  };
  work-in-tmp = {
    workingDirectory = "/tmp/work";
  };
  work-in-proc = {
    workingDirectory = "/proc/self/cwd";
  };
  work-in-the-store = {
    workingDirectory = "/nix/store/work";
  };
  work-that-is-relative = {
    workingDirectory = "work";
  };
  state-in-tmp = {
    stateDir = "/var/tmp/hermes";
  };
  state-of-a-session = {
    stateDir = "/run/user/1000/hermes";
  };
  state-with-a-percent-sign = {
    stateDir = "/srv/100%hermes";
  };
  state-that-is-home = {
    stateDir = "/home";
  };
  work-that-is-the-root = {
    workingDirectory = "/";
  };

  # ── what systemd would pass over ──────────────────────────────────────
  restart-that-is-none = {
    restart = "allways";
  };
  restart-at-once = {
    restartSec = 0;
  };
  watchdog-below-nothing = {
    watchdogSec = -1;
  };
  memory-in-words = {
    tools.memoryMax = "2 gigabytes";
  };
  memory-below-nothing = {
    tools.memoryMax = "-1G";
  };
  memory-above-all = {
    tools.memoryMax = "120%";
  };
  tasks-of-none = {
    tools.tasksMax = 0;
  };
  user-with-a-blank = {
    user = "the agent";
  };
  user-without-a-name = {
    user = "";
  };
  user-with-a-number-first = {
    user = "1hermes";
  };
  group-with-a-colon = {
    group = "hermes:users";
  };
  sandbox-that-is-none = {
    tools.sandbox = "strickt";
  };
  exposure-of-eleven = {
    maxExposure = 11;
  };
  port-above-all = {
    localModel = {
      enable = true;
      model = ./README.md;
      port = 70000;
    };
  };

  # ── types ─────────────────────────────────────────────────────────────
  mcp-sign-in = {
    mcpServers.wiki = {
      url = "https://wiki.example.org/mcp";
      auth = "oauth1";
    };
  };
  mcp-timeout-of-zero = {
    mcpServers.wiki = {
      command = "bash";
      timeout = 0;
    };
  };
  mcp-arguments-as-a-text = {
    mcpServers.wiki = {
      command = "bash";
      args = "-c true";
    };
  };
  approvals-mode = {
    settings.approvals.mode = "manuel";
  };
  level-of-the-log = {
    settings.logging.level = "LOUD";
  };
  share-above-one = {
    settings.compression.threshold = 85;
  };
  hosts-as-a-text = {
    settings.network.hosts = "example.org";
  };
  port-of-the-server = {
    settings.server.port = 70000;
  };
  strict-as-a-text = {
    strictChecks = "yes";
  };
  plugin-settings-as-a-text = {
    plugins.settings.hello = "loud";
  };
  package-as-a-text = {
    extraPackages = [ "ripgrep" ];
  };
  environment-as-a-number = {
    environment.WORKERS = 4;
  };

  # ── settings of plugins that say their types ──────────────────────────
  typed-setting-of-the-wrong-type = {
    extraPlugins = [ fixtures.typed ];
    plugins.settings.typed = {
      city = "Bern";
      days = "many";
    };
  };
  typed-setting-that-is-no-choice = {
    extraPlugins = [ fixtures.typed ];
    plugins.settings.typed = {
      city = "Bern";
      unit = "kelvin";
    };
  };
  typed-setting-that-is-not-there = {
    extraPlugins = [ fixtures.typed ];
    plugins.settings.typed = {
      city = "Bern";
      dayz = 3;
    };
  };
  typed-setting-that-is-a-secret = {
    extraPlugins = [ fixtures.typed ];
    plugins.settings.typed.key = "hunter2";
  };

  # ── several agents ────────────────────────────────────────────────────
  agents-on-one-port = {
    instances.alice.settings.server.port = 8642;
  };
  agents-on-one-port-of-all-addresses = {
    settings.server.enabled = false;
    instances = {
      alice.settings.server = {
        host = "0.0.0.0";
        port = 8700;
      };
      ops.settings.server = {
        host = "10.0.0.5";
        port = 8700;
      };
    };
  };
  agents-on-the-port-of-a-model = {
    localModel = {
      enable = true;
      model = ./README.md;
    };
    instances.alice.settings.server.port = 8641;
  };
  agents-with-two-models = {
    localModel = {
      enable = true;
      model = ./README.md;
    };
    instances.alice.localModel = {
      enable = true;
      model = ./README.md;
    };
  };
  agents-on-the-port-of-a-hook = {
    settings.platforms.webhook.extra.webhook_port = 8700;
    instances.alice.settings.platforms.webhook.extra.webhook_port = 8700;
  };
  agents-of-one-user = {
    instances.alice.user = "hermes";
  };
  agents-of-one-group = {
    instances = {
      alice.group = "staff";
      ops.group = "staff";
    };
  };
  agents-in-one-home = {
    instances.alice.stateDir = "/var/lib/hermes";
  };
  agents-in-homes-of-each-other = {
    instances.alice.stateDir = "/var/lib/hermes/alice";
  };
  agents-that-work-in-a-home = {
    instances.alice.workingDirectory = "/var/lib/hermes/workspace";
  };
  agents-on-one-socket = {
    instances.alice.settings.terminal.exec_socket = "/run/hermes-exec.sock";
  };
  agents-of-one-name = {
    instances.alice = { };
    profiles.alice.gateway.enable = true;
  };
  agents-called-default = {
    instances.default = { };
  };
  agents-called-service = {
    instances.service = { };
  };
  agents-called-as-a-workspace = {
    instances.work = { };
  };
  agents-called-as-commands = {
    instances.exec-alice = { };
  };
  agents-with-a-blank = {
    instances."for alice" = { };
  };
  agents-with-a-long-name = {
    instances.an-agent-that-is-called-after-all-that-it-does = { };
  };
  instance-without-such-an-option = {
    instances.alice.setings = { };
  };
  instance-with-a-wrong-type = {
    instances.alice.settings.agent.max_turns = "ninety";
  };
  instance-with-a-secret = {
    instances.alice.environment.OPENAI_API_KEY = "sk-test-0123456789abcdef";
  };
  instance-in-a-container = {
    instances.alice.container.enable = true;
  };
  instance-without-weights = {
    instances.alice.localModel.enable = true;
  };
}
