"""The command lines of docker and apptainer, as far as the backends use them; "containers" are directories.

As with the real ones, what runs in a container is no child of the program that asked for it: to end the one is not to
end the other. Run as `fake_containers.py STATE docker|apptainer ARGUMENT…`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

STATE = Path(sys.argv[1])


def fail(text: str, code: int = 125) -> None:
    sys.stderr.write(f"{text}\n")
    raise SystemExit(code)


def taken(words: list[str], flags: set[str], options: set[str]) -> dict[str, list[str]]:
    """Take options off the front; an unknown one fails, as it does in the real program."""
    found: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in flags:
            found.setdefault(word, []).append("")
        elif word in options:
            found.setdefault(word, []).append(words.pop(0))
        else:
            fail(f"unknown flag: {word}")
    return found


def container(name: str) -> dict[str, str]:
    try:
        return json.loads((STATE / f"{name}.json").read_text())
    except FileNotFoundError:
        fail(f"No such container: {name}", 1)
        raise


def create(name: str, options: dict[str, list[str]], image: str) -> None:
    if image == "missing":
        fail(f"Unable to find image '{image}'")
    if (STATE / f"{name}.json").exists():
        fail(f"The container name {name} is already in use")
    work = STATE / name
    work.mkdir(parents=True)
    state = {"state": "running", "work": str(work), "options": options, "image": image}
    (STATE / f"{name}.json").write_text(json.dumps(state))


def given(variable: str) -> tuple[str, str]:
    """Return name and value; a name alone stands for what the program itself has."""
    name, equals, value = variable.partition("=")
    return name, value if equals else os.environ[name]


def run_inside(name: str, words: list[str], variables: list[str]) -> None:
    known = container(name)
    if known["state"] != "running":
        fail(f"container {name} is not running", 1)
    env = {"PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": known["work"], **dict(map(given, variables))}
    ours, theirs = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            child = os.fork()
            if child == 0:
                os.chdir(known["work"])
                os.execvpe(words[0], words, env)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os.write(theirs, bytes([128 - code if code < 0 else code]))
        os._exit(0)
    os.close(theirs)
    os.wait()
    raise SystemExit((os.read(ours, 1) or b"\x89")[0])


def docker(words: list[str]) -> None:
    verb = words.pop(0)
    if verb == "ps":
        name = taken(words, {"-a"}, {"--filter", "--format"})["--filter"][0]
        path = STATE / f"{name.removeprefix('name=^/?').removesuffix('$')}.json"
        print(json.loads(path.read_text())["state"] if path.exists() else "")
    elif verb == "run":
        valued = "--name --cap-drop --cap-add --security-opt --pids-limit --memory --cpus --network --volume"
        options = taken(words, {"-d", "--init"}, set(valued.split()))
        create(options["--name"][0], options, words[0])
    elif verb == "exec":
        options = taken(words, {"-i", "-it"}, {"--env", "--workdir"})
        run_inside(words[0], words[1:], options.get("--env", []))
    elif verb in ("stop", "start", "rm"):
        taken(words, {"--force"}, {"--time"})
        known = container(words[0])
        if verb == "rm":
            (STATE / f"{words[0]}.json").unlink()
            shutil.rmtree(known["work"])
        else:
            known["state"] = "running" if verb == "start" else "exited"
            (STATE / f"{words[0]}.json").write_text(json.dumps(known))
    else:
        fail(f"docker: '{verb}' is not a docker command.")


def apptainer(words: list[str]) -> None:
    verb = words.pop(0)
    if verb == "instance" and words.pop(0) == "start":
        flags = {"--containall", "--no-home", "--writable-tmpfs", "--net"}
        options = taken(words, flags, {"--memory", "--network", "--bind"})
        create(words[1], options, words[0])
    elif verb == "instance":
        known = container(words[0])
        (STATE / f"{words[0]}.json").unlink()
        shutil.rmtree(known["work"])
    elif verb == "exec":
        run_inside(words[0].removeprefix("instance://"), words[1:], [])
    else:
        fail(f"Error for command: unknown command {verb}")


if __name__ == "__main__":
    {"docker": docker, "apptainer": apptainer}[sys.argv[2]](sys.argv[3:])
