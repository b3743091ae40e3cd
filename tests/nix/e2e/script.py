# ruff: noqa: F821 - `machine` and `subtest` are the driver's: nixosTest's, or machine.py
# One script for two drivers. It uses what both have: wait_for_unit, wait_until_succeeds, succeed, fail.

ALICE, CAROL, BOB = (
    f"runuser -u {name} -- env -u HERMES_HOME HOME=/home/{name} " for name in ("alice", "carol", "bob")
)

machine.wait_for_unit("hermes-agent.service")
machine.wait_for_unit("hermes-exec.socket")

with subtest("both kinds of plugins are there"):
    listed = machine.succeed("hermes-service plugins list")
    assert "calculator" in listed and "weather" in listed, listed

with subtest("a member of the group talks to the daemon, and goes on with it"):
    assert machine.succeed(f"{ALICE} hermes -z 'say good day'") == "good day\n"
    assert machine.succeed(f"{ALICE} hermes -c -z 'count them'") == "2 questions\n"
    listed = machine.succeed(f"{ALICE} hermes sessions list")
    assert len(listed.splitlines()) == 1, listed
    shown = machine.succeed(f"{ALICE} hermes sessions show {listed.split()[0]}")
    assert "say good day" in shown and "2 questions" in shown, shown
    assert machine.succeed(f"echo 'say from a pipe' | {ALICE} hermes") == "from a pipe\n"

with subtest("another member sees nothing of it"):
    assert machine.succeed(f"{CAROL} hermes sessions list") == "No sessions yet.\n"
    refused = machine.fail(f"{CAROL} hermes sessions show {listed.split()[0]} 2>&1")
    assert "no session" in refused, refused

with subtest("a member sees how the daemon does, sends, and does not run it"):
    status = machine.succeed(f"{ALICE} hermes gateway status")
    assert "running: pid" in status and "http: http://127.0.0.1:8642 ok" in status, status
    refused = machine.fail(f"{ALICE} hermes send --to nowhere:room hello 2>&1")
    assert "nowhere" in refused, refused
    for command in ("stop", "reload", "revive all"):
        refused = machine.fail(f"{ALICE} hermes gateway {command} 2>&1")
        assert "is for root and the daemon's user alone" in refused, refused
    refused = machine.fail(f"{ALICE} hermes sessions search good 2>&1")
    assert "list and show alone" in refused, refused

with subtest("a member reads nothing of the daemon's home"):
    for path in (".hermes/state.db", ".hermes/api_server.key", "workspace"):
        machine.fail(f"{ALICE} cat /var/lib/hermes/{path}")

with subtest("somebody else has an agent of their own, and does not reach the daemon"):
    said = machine.fail(f"{BOB} hermes gateway status")
    assert said == "not running (home /home/bob/.hermes); `hermes gateway run` starts it\n", said
    machine.fail(f"{BOB} ls /run/hermes-agent")

with subtest("a command of the agent does not reach the daemon's socket"):
    said = machine.succeed(f"{ALICE} hermes -z 'run test -e /run/hermes-agent || echo out of reach'")
    assert "out of reach" in said, said

with subtest("the operator's command reads and changes what commands made"):
    machine.succeed(f"{ALICE} hermes -z 'run umask 077; echo made > made.txt; mkdir kept'")
    assert machine.succeed("runuser -u hermes -- cat /var/lib/hermes/workspace/made.txt") == "made\n"
    machine.succeed("runuser -u hermes -- touch /var/lib/hermes/workspace/kept/more")

with subtest("a turn whose asker went away is stopped, and its session is free again"):
    machine.succeed(f"{ALICE} hermes -z 'hang' > /dev/null 2>&1 &")
    machine.wait_until_succeeds("test -e /run/scripted-model/hanging")
    machine.succeed("pkill -INT -u alice -f 'hermes -z hang'")
    machine.wait_until_succeeds(f"test $({ALICE} hermes -c -z 'say free') = free")

with subtest("root, and the daemon's user, run it"):
    assert machine.succeed("hermes-service gateway reload")
    status = machine.succeed("hermes gateway status")
    assert "running: pid" in status, status

with subtest("a daemon that is killed comes back with what was said"):
    machine.succeed("systemctl kill -s KILL hermes-agent")
    machine.wait_until_succeeds(f"{ALICE} hermes gateway status")
    assert machine.succeed(f"{ALICE} hermes sessions list | wc -l").strip() == "5"
    assert machine.succeed(f"{ALICE} hermes -z 'say here again'") == "here again\n"

with subtest("it stops in order"):
    machine.succeed("hermes gateway stop")
    machine.wait_until_succeeds("test $(systemctl show -P ActiveState hermes-agent) = inactive")
    assert machine.succeed("systemctl show -P Result hermes-agent") == "success\n"
