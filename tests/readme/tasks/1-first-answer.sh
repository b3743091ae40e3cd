# README, "Then choose a model", last row: no key, no server.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"

# without weights it names the ways to a model
says 'hermes model pull' env XDG_CACHE_HOME="$HOME/empty" hermes -z "Say hello in one short sentence."
says 'there|pulled|weights' hermes model pull
says 'usable +yes' hermes model status
says '[Hh]ello' hermes -z "Say hello in one short sentence."
says 'Say hello' hermes sessions list
