# README, "Use": the daemon, and docs/operator/http.md's request.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"
with_model

hermes gateway run >"$HOME/daemon.log" 2>&1 &
started="$started $!"
wait_for hermes gateway status
says '127.0.0.1:8642|http' hermes gateway status
ask() {
  curl -s http://127.0.0.1:8642/v1/chat/completions -H "Authorization: Bearer $(hermes gateway key)" \
    -H 'Content-Type: application/json' -H 'X-Hermes-Session-Id: mine' -d "{\"messages\": [{\"role\": \"user\", \"content\": \"$1\"}]}"
}
ask 'use todo' | tee "$HOME/answer.json"
grep -q 'The tool said' "$HOME/answer.json" || fail "no answer over HTTP"
says 'HTTP/1.1 401' curl -si http://127.0.0.1:8642/v1/models
says 'use todo' hermes sessions list --all
says 'turn' hermes logs -n 20
[ "$(wc -l <"$HOME/daemon.log")" -le 10 ] || fail "the start printed more than ten lines"
says 'stopped|ended' hermes gateway stop
