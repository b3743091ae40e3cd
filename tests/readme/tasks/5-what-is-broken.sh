# README, "Use": `hermes doctor` finds out why something does not work, and each error names its cause.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"
with_model
says 'answered' hermes doctor --ask

hermes config set model.base_url http://127.0.0.1:9/v1      # nothing listens there
says 'refused' hermes doctor
says 'refused' hermes -z hello
hermes config set model.base_url "$(cat "$HOME/model-url")"

says 'did you mean' hermes config set modle.default x
says 'openrouter' hermes config set model.provider opnrouter
printf 'agent: {max_turns: many}\n' >> "$HOME/.hermes/config.yaml"
says 'agent.max_turns' hermes doctor
says 'agent.max_turns' hermes config check
sed -i '/max_turns: many/d' "$HOME/.hermes/config.yaml"

mkdir -p "$HOME/.hermes/plugins/broken"
printf 'name: broken\nversion: "1"\n' > "$HOME/.hermes/plugins/broken/plugin.yaml"
printf 'import no_such_module_here\n' > "$HOME/.hermes/plugins/broken/__init__.py"
hermes plugins enable broken
says 'no_such_module_here' hermes doctor
says 'broken .*no_such_module_here' hermes plugins list
says 'no_such_module_here' hermes plugins doctor
hermes gateway run >"$HOME/daemon.log" 2>&1 &
started="$started $!"
wait_for hermes gateway status
says 'no_such_module_here' hermes gateway status
says 'stopped|ended' hermes gateway stop
hermes plugins disable broken
says 'answered' hermes doctor --ask
