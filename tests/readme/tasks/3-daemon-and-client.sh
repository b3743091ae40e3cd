# README, "Use": the daemon, and the request of its client.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"
with_model

hermes gateway run >"$HOME/daemon.log" 2>&1 &
started="$started $!"
wait_for hermes gateway status
says '127.0.0.1:8642|http' hermes gateway status
sed -n '/^curl -s /,/^```$/p' "$TASKS/../../../README.md" | grep -v '```' | sed 's/What is 2 [^"]*/use todo/' > "$HOME/ask.sh"
says 'The tool said' sh "$HOME/ask.sh"
says 'HTTP/1.1 401' curl -si http://127.0.0.1:8642/v1/models
says 'turn over HTTP: answered' hermes logs -n 20
[ "$(wc -l <"$HOME/daemon.log")" -le 10 ] || fail "the start printed more than ten lines"
says 'stopped|ended' hermes gateway stop
