"""What commands in the sandbox and the file tools see of a home and of the system: a list, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox import file_rules, mounts
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from hermes_agent.workspace.sandbox.file_rules import Protected

SECRET = "sk-of-the-user-4711"
HIDDEN = """
    .config/gcloud/credentials.db .config/gcloud/application_default_credentials.json .azure/msal_token_cache.json
    .aws/credentials .aws/sso/cache/a1b2.json .aws/cli/cache/x.json .npmrc .cargo/credentials.toml .cargo/credentials
    .cargo/config.toml .vault-token .config/rclone/rclone.conf .mozilla/firefox/p.default/logins.json .gem/credentials
    .config/google-chrome/Default/Cookies .local/share/keyrings/login.keyring .ssh/id_ed25519 .ssh/keys/work/deploy
    .gnupg/private-keys-v1.d/a.key .netrc .pgpass .kube/config .docker/config.json .config/gh/hosts.yml .pypirc
    .terraform.d/credentials.tfrc.json .m2/settings.xml .gradle/gradle.properties .git-credentials .bash_history
    .config/git/credentials .cache/huggingface/token .password-store/mail.gpg .hermes/auth.json .hermes/profiles/b/.env
    .config/new-vendor/token.json .unheard-of snap/firefox/common/.mozilla/firefox/p/logins.json .composer/auth.json
    .config/composer/auth.json .pub-cache/credentials.json .hex/hex.config .nuget/NuGet/NuGet.Config .yarnrc.yml
    .julia/servers/x/auth.toml .sdkman/etc/config .volta/hooks.json .deno/x .conda/x .stack/config.yaml
""".split()  # noqa: SIM905 - a table
TOOLCHAINS = """
    .cargo/bin/rustc .rustup/toolchains/stable/lib .cargo/registry/src/a .pyenv/shims/python .nvm/versions/node/v1/bin
    .local/bin/tool .local/share/uv/tools/x .m2/repository/a.jar .cache/huggingface/hub/model go/pkg/mod/m
    Documents/letter.txt projects/site/index.html notes.txt
""".split()  # noqa: SIM905 - a table


def plant(user: Path, names: list[str], text: str = SECRET) -> None:
    for name in names:
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_text(text)


def said(place, command: str) -> str:
    """Return what a command prints, from a script, so that nobody is asked about the files that it names."""
    (place.cwd / "try.sh").write_text(command)
    outcome = place.outcome("terminal", {"command": "bash try.sh"})
    assert place.person.asked == []
    return str(json.loads(outcome.result)["output"])


@pytest.mark.attack("sandbox: reading", at="bubblewrap")
def test_nothing_hidden_of_the_home_can_be_read_by_a_command(boxed, attempt):
    user = boxed.home.parent
    plant(user, HIDDEN)
    program = (
        "import os\n"
        f"for name in {HIDDEN!r}:\n"
        "    try: print(name, open(os.path.expanduser('~/' + name)).read())\n"
        "    except OSError: pass\n"
        "print('end')\n"
    )
    (boxed.cwd / "try.py").write_text(program)
    output = said(boxed, "python3 try.py")
    assert output.endswith("end\n")
    for name in HIDDEN:
        attempt(f"{name} {SECRET}" not in output, name)
    attempt(SECRET not in said(boxed, "grep -ra sk-of-the-user ~ 2>/dev/null; true"), "grep of the home")


@pytest.mark.attack("sandbox: reading")
def test_nothing_hidden_of_the_home_can_be_read_by_a_file_tool(workplace, attempt):
    user = workplace.home.parent
    plant(user, HIDDEN)
    (workplace.cwd / "link").symlink_to(user)
    for name in HIDDEN:
        for path in (f"~/{name}", f"link/{name}", f"../{name}"):
            attempt(SECRET not in workplace.outcome("read_file", {"path": path}).result, f"read_file {path}")
        patch = {"mode": "replace", "path": f"~/{name}", "old_string": "no such text", "new_string": "x"}
        attempt(SECRET not in workplace.outcome("patch", patch).result, f"patch {name}")
    for path in ("~", "~/.config", "..", "link"):
        found = workplace.outcome("search_files", {"pattern": "of-the-user", "path": path}).result
        attempt(SECRET not in found, f"search_files {path}")
        names = workplace.outcome("search_files", {"pattern": "logins.json", "path": path, "target": "files"}).result
        attempt("firefox" not in names, f"search_files for names in {path}")


def test_toolchains_and_what_is_visible_are_read_and_not_written(boxed):
    user = boxed.home.parent
    plant(user, TOOLCHAINS, "seen")
    output = said(boxed, f"cd ~; cat {' '.join(TOOLCHAINS)}; echo x >> Documents/letter.txt; echo x > .cargo/bin/y")
    assert output.startswith("seen" * len(TOOLCHAINS)) and output.count("Read-only file system") == 2
    for name in TOOLCHAINS:
        assert "seen" in boxed.call("read_file", path=f"~/{name}")["content"]


def test_a_link_in_the_home_leads_to_nothing_that_is_not_shown(boxed):
    user = boxed.home.parent
    plant(user, [".aws/credentials"])
    plant(user, ["Documents/letter"], "seen")
    (user / "cloud").symlink_to(".aws")
    (user / "papers").symlink_to("Documents")
    (user / ".cargo").mkdir()
    (user / ".cargo" / "bin").symlink_to(user / ".aws")
    output = said(boxed, "cat ~/papers/letter ~/cloud/credentials ~/.cargo/bin/credentials")
    assert output.startswith("seen") and SECRET not in output
    for path in ("~/cloud/credentials", "~/.cargo/bin/credentials"):
        assert "not open to tools" in boxed.call("read_file", path=path)["error"]


def test_what_the_operator_adds_is_shown(place_with):
    place = place_with("terminal: {sandbox: auto, sandbox_paths: [~/.config/nvim, ~/.npmrc]}\n")
    user = place.home.parent
    plant(user, [".config/nvim/init.lua", ".npmrc"], "added")
    plant(user, [".config/other", ".aws/credentials"])
    assert said(place, "cat ~/.config/nvim/init.lua ~/.npmrc ~/.config/other 2>/dev/null; true") == "addedadded"
    assert "added" in place.call("read_file", path="~/.config/nvim/init.lua")["content"]
    assert "added" in place.call("read_file", path="~/.npmrc")["content"]
    assert "sandbox_paths" in place.call("read_file", path="~/.config/other")["error"]


def test_a_hidden_working_directory_is_worked_in_and_its_neighbours_are_not_there(boxed):
    user = boxed.home.parent
    plant(user, [".work/notes/today"], "mine")
    plant(user, [".work/token"])
    command = {"command": "cat today; echo x > made; cat ../token"}
    output = boxed.outcome("terminal", command, cwd=user / ".work" / "notes").result
    assert "mine" in output and SECRET not in output and (user / ".work/notes/made").exists()
    read = boxed.outcome("read_file", {"path": "today"}, cwd=user / ".work" / "notes").result
    assert "mine" in read


@pytest.mark.attack("sandbox: reading", at="bubblewrap")
@pytest.mark.parametrize("above", [".config", ".", ".."])
def test_a_working_directory_above_credentials_does_not_open_them(boxed, attempt, above):
    user = boxed.home.parent
    plant(user, [".config/gcloud/token", ".config/gh/hosts.yml", ".aws/credentials"])
    where = (user / above).resolve()
    for name in (".config/gcloud/token", ".config/gh/hosts.yml", ".aws/credentials"):
        output = boxed.outcome("terminal", {"command": f"cat {user / name}"}, cwd=where).result
        attempt(SECRET not in output, f"cat {name} in {above}")
        attempt(SECRET not in boxed.outcome("read_file", {"path": str(user / name)}, cwd=where).result, name)


@pytest.mark.attack("sandbox: reading", at="bubblewrap")
@pytest.mark.parametrize("main", [".hermes", "agent"])
def test_a_profile_sees_neither_the_main_home_nor_its_siblings(tmp_path, attempt, main):
    user, cwd = tmp_path / "user", tmp_path / "user" / "project"
    own = user / main / "profiles" / "work"
    names = ["auth.json", ".env", "state.db", "profiles/other/.env", "profiles/other/auth.json", "profiles/work/.env"]
    plant(user / main, names)
    cwd.mkdir()
    places = PathRules(str(own), str(user))
    box = BubblewrapSandbox(places, path="/usr/bin:/bin")
    if box.problem:
        pytest.skip(f"no sandbox can be made here: {box.problem}")
    argv, env = box.wrap(
        ["/bin/sh", "-c", f"cd ../{main}; cat {' '.join(names)}; echo end"], str(cwd), {}, root=str(cwd)
    )
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("end\n"), done
    attempt(SECRET not in done.stdout, f"cat in the sandbox, {main}")
    for name in names:
        attempt(places.closed_reason(str(user / main / name)) is not None, f"read_file {main}/{name}")


@pytest.mark.parametrize("path", ["/home/other/x", "/root/x", "/srv/x", "/var/lib/mysql/x", "/boot/x", "/mnt/x", "/x"])
def test_other_homes_and_unlisted_places_of_the_system_are_closed(path):
    places = PathRules("/home/ann/.hermes", "/home/ann")
    assert "terminal.sandbox_paths" in str(places.unlisted_reason(path))
    assert places.for_cwd("/srv").unlisted_reason("/srv/x") is None
    assert PathRules("/home/ann/.hermes", "/home/ann", "", [path]).unlisted_reason(path) is None


@pytest.mark.parametrize("path", ["/usr/bin/env", "/etc/hosts", "/nix/store/x", "/tmp/x", "/", "/home", "/home/ann/x"])
def test_programs_and_their_settings_are_listed(path):
    assert PathRules("/home/ann/.hermes", "/home/ann").unlisted_reason(path) is None


def test_the_table_leads_to_no_other_home_through_the_list_itself(boxed):
    names = said(boxed, "ls /; ls -A /var /run 2>/dev/null")
    assert {"srv", "boot", "mnt", "media", "mail", "spool", "dbus"}.isdisjoint(names.split())


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may read what others may not")
@pytest.mark.attack("sandbox: reading", at="bubblewrap")
def test_for_root_what_other_users_may_not_read_is_not_there(boxed, attempt):
    paths = Protected().paths()
    assert "/etc/shadow" in paths
    for path in paths:
        attempt(said(boxed, f"cat {path} 2>/dev/null; ls -A {path}/ 2>/dev/null; true") == "", path)
        if Path(path).is_file():
            attempt("content" not in boxed.outcome("read_file", {"path": path}).result, f"read_file {path}")


def test_the_list_of_protected_files_follows_the_directories(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "open").write_text("")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    bases = {str(tmp_path): 2}
    listed = Protected(bases)
    assert listed.paths() == ()
    for name in ("key", "deep/key", "deep/er/key"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o600)
    assert sorted(listed.paths()) == [f"{tmp_path}/deep/key", f"{tmp_path}/key"]
    assert not file_rules.others_may_read(f"{tmp_path}/key", bases)
    assert file_rules.others_may_read(f"{tmp_path}/open", bases)


GITCONFIG = """
[user]
\tname = Ann
[credential "https://example.org"]
\thelper = store
\tpassword = pw-4711
[alias]
\tst = status
[url "https://ann:pw-4711@example.org/"]
\tinsteadOf = https://example.org/
[http]
\textraHeader = Authorization: Basic pw-4711
[include]
\tpath = ~/.secret-config
[sendemail]
\tsmtppass = pw-4711
[core]
\tpager = curl https://ann:pw-4711@example.org/
"""


def test_the_settings_of_git_are_shown_without_credentials(boxed):
    (boxed.home.parent / ".gitconfig").write_text(GITCONFIG)
    assert said(boxed, "git config user.name; git config alias.st") == "Ann\nstatus\n"
    assert "pw-4711" not in said(boxed, "cat ~/.gitconfig; git config --list")
    assert "pw-4711" not in boxed.outcome("read_file", {"path": "~/.gitconfig"}).result


def test_a_config_of_git_keeps_what_a_repository_needs():
    shown = mounts.strip_credentials('[init]\n\tdefaultBranch = main\n[filter "lfs"]\n\tclean = git-lfs clean\n')
    assert shown == '[init]\n\tdefaultBranch = main\n[filter "lfs"]\n\tclean = git-lfs clean\n'


@pytest.mark.attack("sandbox: reading", at="bubblewrap")
@pytest.mark.parametrize("entry", ["//", "~/.", "~/../../..", "{user}", "{user}/.hermes", "/home", "/root"])
def test_no_entry_of_the_operator_shows_a_whole_home(place_with, tmp_path, attempt, entry):
    entry = entry.format(user=tmp_path / "user")
    place = place_with(f"terminal: {{sandbox: auto, sandbox_paths: ['{entry}'], writable_paths: ['{entry}']}}\n")
    plant(place.home.parent, [".aws/credentials"])
    attempt(SECRET not in said(place, "cat ~/.aws/credentials 2>&1; true"), f"a command, {entry}")
    attempt(SECRET not in place.outcome("read_file", {"path": "~/.aws/credentials"}).result, f"read_file, {entry}")
    checks = place.registry.get("terminal").handler.loaded.shells.backend.checks()
    assert [detail for ok, _, detail in checks if not ok and repr(entry) in detail]


def test_doctor_names_what_the_operator_adds_and_what_has_no_effect(place_with):
    place = place_with(
        "terminal: {sandbox: auto, sandbox_paths: [~/.config/nvim, /no/such], writable_paths: [~/Notes]}\n"
    )
    user = place.home.parent
    (user / "Notes").mkdir()
    (user / ".config/nvim").mkdir(parents=True)
    rows = list(place.registry.get("terminal").handler.loaded.shells.backend.checks())
    shown = f"{user}/.config/nvim; /no/such; {user}/Notes"
    assert (True, "the sandbox shows additionally (terminal.sandbox_paths, writable_paths)", shown) in rows
    assert (True, "written without a question (terminal.writable_paths)", f"{user}/Notes") in rows
    assert (False, "terminal.sandbox_paths, writable_paths", "/no/such does not exist: no effect") in rows
