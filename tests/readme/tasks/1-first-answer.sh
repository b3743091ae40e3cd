# README, "Then choose a model", last row: no key, no server.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"

says 'hermes model pull' hermes -z "What's 2 to the power of 16?"   # without a model it names the ways
says 'there|pulled|weights' hermes model pull
says 'usable +yes' hermes model status
says '.' hermes -z "Say hello in one short sentence."
echo "$output" | grep -qi hello || fail "no greeting"
says 'hello' hermes sessions list
