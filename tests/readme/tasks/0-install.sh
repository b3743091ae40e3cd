# README, "Install": the program is there as it should be, and says how to change that.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"
says 'hermes-agent 0' hermes --version
says 'files are as installed' hermes self check
says '. command +.hermes. is .*/.local/bin/hermes' hermes self check
hermes self check || fail "a fresh installation is not as it should be"
says 'docs/operator/models.md' hermes self docs
says 'docs/operator/models-embedded.md|# The embedded model' hermes self docs models-embedded
says 'version +0' hermes update --check "$TASKS/../../.."
says 'config +unchanged' hermes update --check "$TASKS/../../.."
says 'remove .*/.local/share/hermes-agent' hermes uninstall --dry-run
says ' setup +' hermes --help
says 'the key of OpenRouter is not given' hermes setup --provider openrouter
