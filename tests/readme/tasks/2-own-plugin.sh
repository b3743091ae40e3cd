# README, "Plugins": begin one, use it, edit it, use it again.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"
with_model
cd "$HOME"

says 'plugin.yaml' hermes plugins new dice
printf '%s\n' "$output" | sed -n '/While you work/,$s/^            //p' > link.sh   # as it was printed
says 'no conflicts' hermes plugins check ./dice
says 'dice is enabled' sh -e link.sh
says 'dice +0.1.0 +enabled' hermes plugins list
says 'The tool said: .*words' hermes -z 'use dice {"text": "seven"}'

cat >> dice/__init__.py <<'PYTHON'


_register = register


def register(ctx):
    """Also bring a command."""
    _register(ctx)
    ctx.register_command("shake", lambda arguments: "shaken, not stirred", description="Shake the dice")
PYTHON
says 'shaken, not stirred' hermes -z '/shake'      # an edit waits for nothing
says 'The tool said: .*words' hermes -z 'use dice {"text": "seven"}'

# without `trust: dev` an edit waits for a grant, and says so where the command is called
hermes config unset plugins.entries.dice.trust
hermes plugins grant dice --yes
says 'shaken, not stirred' hermes -z '/shake'
sed -i 's/not stirred/and stirred/' dice/__init__.py
says 'hermes plugins grant dice' hermes -z '/shake'
hermes plugins grant dice --yes
says 'shaken, and stirred' hermes -z '/shake'
