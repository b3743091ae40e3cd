# README, "Install", and `hermes setup --help`: a daemon that starts at boot. The machine boots between the two phases.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"

case ${2:-$1} in
installed) # the shell of a login, in which `setup` can reach the user's manager
  if [ $# -lt 2 ]; then exec runuser -l "$(id -un)" -c "sh $0 login installed"; fi
  with_model
  says 'enable-linger' hermes setup --help
  says 'enable-linger. starts it at boot' hermes setup --base-url "$(cat "$HOME/model-url")" --model scripted-model --no-platform --service user
  says 'http: http://127.0.0.1:8642 ok' hermes gateway status
  says 'unit ' hermes self check
  loginctl enable-linger # as `setup` says
  ;;
booted-again) # nobody logs in
  [ "$(loginctl list-sessions --no-legend | wc -l)" = 0 ] || fail "there is a login"
  wait_for hermes gateway status
  says 'http: http://127.0.0.1:8642 ok' hermes gateway status
  with_model # its port is another one than before
  hermes gateway reload
  sed -n '/^curl -s /,/^```$/p' "$TASKS/../../../README.md" | grep -v '```' | sed 's/What is 2 [^"]*/use todo/' > "$HOME/ask.sh"
  says 'The tool said' sh "$HOME/ask.sh"
  says 'removed' runuser -l "$(id -un)" -c 'PATH=$HOME/.local/bin:$PATH hermes setup --remove-service'
  if hermes gateway status; then fail "the daemon runs without its service"; fi
  ;;
*) fail "usage: $0 installed|booted-again" ;;
esac
