# Python packages by purpose, under the names that upstream gives its groups of optional dependencies:
# { packages } -> [ group ] -> [ package ]. Names are nixpkgs'. An empty list: the agent needs nothing for it.
{ lib }:
{ packages }:
let
  groups = {
    acp = [ "agent-client-protocol" ];
    all = [ ];
    anthropic = [ "anthropic" ];
    azure-identity = [ "azure-identity" ];
    bedrock = [ "boto3" "botocore" ];
    cli = [ ];
    compat = [
      "anyio" "croniter" "cryptography" "fastapi" "jinja2" "markdown" "packaging" "pathspec" "pillow" "psutil"
      "ptyprocess" "pydantic" "pyjwt" "python-dateutil" "python-dotenv" "python-multipart" "starlette" "tenacity"
      "urllib3" "websockets"
    ];
    cron = [ ];
    daytona = [ "daytona" ];
    dingtalk = [ "dingtalk-stream" ];
    discord = [ "discordpy" ];
    ddgs = [ "ddgs" ];
    documents = [ "cryptography" "openpyxl" "pypdf" "python-docx" "python-pptx" ];
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
    messaging = [ "aiohttp" "discordpy" "python-telegram-bot" "slack-bolt" "slack-sdk" ];
    modal = [ "modal" ];
    pty = [ ];
    slack = [ "aiohttp" "slack-bolt" "slack-sdk" ];
    sms = [ "aiohttp" ];
    tts-premium = [ "elevenlabs" ];
    vertex = [ "cryptography" ];
    voice = [ "faster-whisper" "numpy" "sounddevice" ];
    web = [ "trafilatura" "lxml-html-clean" ];
    xmpp = [ "slixmpp" ];
  };

  option = "extraDependencyGroups";
  packageOf = group: name: packages.${name} or (throw ''
    hermes-agent: ${option}: the group `${group}` needs the Python package `${name}`, which the package set does not have.
    hint: drop the group, and bring the package with an overlay or extraPythonPackages = ps: [ (ps.buildPythonPackage { … }) ].'');
  packagesOf = group:
    map (packageOf group) (groups.${group} or (throw ''
      hermes-agent: ${option}: there is no group `${group}`.
      hint: there are ${lib.concatStringsSep ", " (lib.attrNames groups)}. Other packages: extraPythonPackages = ps: [ … ].''));
in
chosen: lib.unique (lib.concatMap packagesOf chosen)
