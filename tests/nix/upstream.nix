# Configurations as people write them for upstream's module and for the plugin guide, option by option: they have to
# evaluate as they are. Without containers and backends, which are refused.
{ lib }:
{
  minimal = { config, ... }: {
    services.hermes-agent = {
      enable = true;
      settings.model.default = "anthropic/claude-sonnet-4";
      environmentFiles = [ config.sops.secrets."hermes-env".path ];
      addToSystemPackages = true;
    };
  };

  # The same keys from two files, and the model as a text.
  merged = {
    imports = [
      {
        services.hermes-agent.settings = {
          toolsets = [ "all" ];
          terminal = {
            backend = "local";
            timeout = 180;
          };
          model = "gpt-5";
        };
      }
      {
        services.hermes-agent.settings = {
          display = {
            compact = false;
            personality = "kawaii";
          };
          memory = {
            memory_enabled = true;
            user_profile_enabled = true;
          };
        };
      }
    ];
    services.hermes-agent.enable = true;
    services.hermes-agent.environmentFiles = [ "/run/secrets/hermes-env" ];
  };

  everything = { config, pkgs, ... }: {
    services.hermes-agent = {
      enable = true;
      user = "assistant";
      group = "assistant";
      createUser = true;
      stateDir = "/srv/assistant";
      workingDirectory = "/srv/assistant/work";
      settings = {
        model = {
          base_url = "https://openrouter.ai/api/v1";
          default = "anthropic/claude-opus-4.6";
        };
        toolsets = [ "all" ];
        terminal = {
          backend = "local";
          cwd = ".";
          timeout = 180;
        };
        compression = {
          enabled = true;
          threshold = 0.85;
          summary_model = "google/gemini-3-flash-preview";
        };
        agent = {
          max_turns = 60;
          verbose = false;
        };
        memory.provider = "http-memory";
        plugins.enabled = [ "hello" ];
      };
      environment.TZ = "Europe/Berlin";
      environmentFiles = [
        config.sops.secrets."hermes-env".path
        "/var/lib/hermes/env"
      ];
      authFile = config.sops.secrets."hermes/auth.json".path;
      authFileForceOverwrite = true;
      documents = {
        "AGENTS.md" = ./README.md;
        "notes/oncall.md" = "Call before you restart anything.";
      };
      hermesHomeFiles = {
        "SOUL.md" = "You help.";
        "memories/USER.md" = ./README.md;
      };
      mcpServers = {
        filesystem = {
          command = "npx";
          args = [
            "-y"
            "@modelcontextprotocol/server-filesystem"
            "/data/workspace"
          ];
        };
        github = {
          command = "npx";
          args = [
            "-y"
            "server-github"
          ];
          env.GITHUB_PERSONAL_ACCESS_TOKEN = "\${GITHUB_TOKEN}";
        };
        remote = {
          url = "https://mcp.example.com/v1/mcp";
          headers.Authorization = "Bearer \${MCP_REMOTE_API_KEY}";
          timeout = 180;
          connect_timeout = 30;
          enabled = false;
        };
        signed-in = {
          url = "https://mcp.example.com/mcp";
          auth = "oauth";
        };
        analysis = {
          command = "npx";
          tools.include = [ "ask" ];
          sampling = {
            enabled = true;
            model = "google/gemini-3-flash";
            max_tokens_cap = 4096;
            timeout = 30;
            max_rpm = 10;
            max_tool_rounds = 2;
            allowed_models = [ "google/gemini-3-flash" ];
            log_level = "info";
          };
        };
      };
      extraArgs = [ "--verbose" ];
      extraPackages = [ pkgs.jq ];
      extraPlugins = [
        (lib.cleanSourceWith {
          name = "source";
          src = ./plugins/hello;
          filter = _: _: true;
        })
      ];
      extraDependencyGroups = [
        "hindsight"
        "messaging"
      ];
      restart = "always";
      restartSec = 10;
      addToSystemPackages = true;
    };
  };

  # Further homes, with and without a gateway.
  profiles = { pkgs, ... }: {
    services.hermes-agent = {
      enable = true;
      settings.model.default = "anthropic/claude-sonnet-4";
      environmentFiles = [ "/run/secrets/hermes-env" ];
      extraPackages = [ pkgs.jq ];
      profiles = {
        research = {
          gateway.enable = true;
          settings.model.default = "gpt-5";
          environmentFiles = [ "/run/secrets/research-env" ];
          hermesHomeFiles."SOUL.md" = "You read.";
        };
        drafts.settings.model.default = "gpt-5";
      };
    };
  };

  # Plugins of the package's own interpreter, as the newer documentation has it.
  ownInterpreter = { config, ... }: {
    services.hermes-agent = {
      enable = true;
      extraPythonPackages = [
        (config.services.hermes-agent.package.python.pkgs.buildPythonPackage {
          pname = "hello-package";
          version = "1.0.0";
          src = ./packages/hello-package;
          format = "pyproject";
          build-system = [ config.services.hermes-agent.package.python.pkgs.setuptools ];
        })
      ];
    };
  };

  # The guide's: whatever nixpkgs' own Python is.
  guide = { pkgs, ... }: {
    services.hermes-agent.enable = true;
    services.hermes-agent.extraPythonPackages = [
      (pkgs.python312Packages.buildPythonPackage {
        pname = "my-plugin";
        version = "1.0.0";
        src = pkgs.fetchFromGitHub {
          owner = "you";
          repo = "hermes-my-plugin";
          rev = "v1.0.0";
          hash = "sha256-...";
        };
        format = "pyproject";
        build-system = [ pkgs.python312Packages.setuptools ];
      })
    ];
  };
  guideDirectory = { pkgs, ... }: {
    services.hermes-agent.enable = true;
    services.hermes-agent.extraPlugins = [
      (pkgs.fetchFromGitHub {
        owner = "you";
        repo = "hermes-my-plugin";
        rev = "v1.0.0";
        hash = "sha256-...";
      })
      (pkgs.fetchFromGitHub {
        owner = "you";
        repo = "hermes-other-plugin";
        rev = "v1.0.0";
        hash = "sha256-...";
      })
    ];
  };

  ownConfigFile = {
    services.hermes-agent = {
      enable = true;
      configFile = "/etc/hermes/config.yaml";
    };
  };
  fileBesideIt = {
    services.hermes-agent = {
      enable = true;
      configFile = ./hermes.yaml;
    };
  };

  overridden = { pkgs, ... }: {
    services.hermes-agent = {
      enable = true;
      package = (pkgs.callPackage ../../nix/package.nix { }).override {
        extraDependencyGroups = [ "hindsight" ];
      };
    };
  };
}
