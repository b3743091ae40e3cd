# Python packages by purpose, under the names that upstream gives its groups of optional dependencies:
# { packages } -> { group = [ package ]; }. Names are nixpkgs', or of ./python. An empty list: the agent needs nothing.
{ lib }:
{ packages }:
let
  groups = {
    acp = [ "agent-client-protocol" ];
    all = [ ];
    anthropic = [ "anthropic" ];
    azure-identity = [ "azure-identity" ];
    bedrock = [
      "boto3"
      "botocore"
    ];
    cli = [ ];
    compat = [
      "anyio"
      "croniter"
      "cryptography"
      "fastapi"
      "jinja2"
      "markdown"
      "openai"
      "packaging"
      "pathspec"
      "pillow"
      "psutil"
      "ptyprocess"
      "pydantic"
      "pyjwt"
      "python-dateutil"
      "python-dotenv"
      "python-multipart"
      "starlette"
      "tenacity"
      "urllib3"
      "websockets"
    ];
    cron = [ ];
    daytona = [ "daytona" ];
    dingtalk = [ "dingtalk-stream" ];
    discord = [ "discordpy" ];
    ddgs = [ "ddgs" ];
    documents = [
      "cryptography"
      "openpyxl"
      "pypdf"
      "python-docx"
      "python-pptx"
    ];
    edge-tts = [ "edge-tts" ];
    exa = [ "exa-py" ];
    fal = [ "fal-client" ];
    feishu = [ "lark-oapi" ];
    firecrawl = [ "firecrawl-py" ];
    hindsight = [ "hindsight-client" ];
    homeassistant = [ "aiohttp" ];
    honcho = [ "honcho-ai" ];
    local = [ "xllamacpp" ];
    matrix = [ "mautrix" ];
    mcp = [ "mcp" ];
    messaging = [
      "aiohttp"
      "discordpy"
      "python-telegram-bot"
      "slack-bolt"
      "slack-sdk"
    ];
    modal = [ "modal" ];
    openai = [ "openai" ];
    pty = [ ];
    slack = [
      "aiohttp"
      "slack-bolt"
      "slack-sdk"
    ];
    sms = [ "aiohttp" ];
    tts-premium = [ "elevenlabs" ];
    vertex = [ "cryptography" ];
    voice = [
      "faster-whisper"
      "numpy"
      "sounddevice"
    ];
    web = [
      "trafilatura"
      "lxml-html-clean"
    ];
    xmpp = [ "slixmpp" ];
  };

  # What nixpkgs has in place of a package that it cannot serve.
  instead.xllamacpp = "NixOS runs llama.cpp's own server: services.hermes-agent.localModel.enable = true;";
  remedy =
    name:
    instead.${name}
      or "drop the group, and bring the package with an overlay or extraPythonPackages = ps: [ (ps.buildPythonPackage { … }) ].";

  package =
    group: name:
    packages.${name} or (throw ''
      hermes-agent: extraDependencyGroups: the group `${group}` needs the Python package `${name}`, which the package set does not have.
      hint: ${remedy name}'');
in
lib.mapAttrs (group: map (package group)) groups
