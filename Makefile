# Every target makes .venv by itself; only the first one is slow. Needed: Python >= 3.11 with venv, make.
#   make PYTHON=python3.12 test     another interpreter
#   make test ARGS="-k rekey -x"    arguments for the program that the target runs

SHELL := /bin/sh
VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip --disable-pip-version-check

# The first of these that is new enough and can make a venv; PYTHON (environment or command line) is then the only one.
PYTHON     ?=
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11 python3.14)

USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help venv test check format coverage demo soak bench interop interop-suite clean

help:
	@echo "make demo      show it at work, with the machine's sshd where there is one"
	@echo "make test      the test suite"
	@echo "make check     ruff, ruff format, mypy --strict"
	@echo "make format    let ruff rewrite the sources"
	@echo "make coverage  the test suite, with branch coverage"
	@echo "make soak      the repeating tests, ten times as long"
	@echo "make bench     compare speed with other implementations"
	@echo "make interop   try it against other implementations, in containers"
	@echo "make interop-suite  the test suite on Python 3.13 with OpenSSH 10, in a container"
	@echo "make clean     remove .venv and caches"

# A sound environment that is there already is kept.
$(BIN)/.made:
	@set -e; \
	if $(BIN)/python -c '$(USABLE)' 2>/dev/null; then touch $@; exit 0; fi; \
	for python in $(CANDIDATES); do \
	    if "$$python" -c '$(USABLE)' 2>/dev/null; then found="$$python"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "make: no Python >= 3.11 with the venv module found (tried: $(CANDIDATES))." >&2; \
	    echo "make: on Debian and Ubuntu: apt-get install python3-venv; or say make PYTHON=/path/to/python ..." >&2; \
	    exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$found" --version)"; \
	"$$found" -m venv --clear $(VENV); \
	touch $@

# One --quiet: pip's warnings and errors stay visible.
$(BIN)/.test: $(BIN)/.made pyproject.toml
	@echo "installing sshtransport[test] into $(VENV)"
	@$(PIP) install --quiet --editable '.[test]'
	@touch $@

$(BIN)/.lint: $(BIN)/.test
	@echo "installing sshtransport[test,lint] into $(VENV)"
	@$(PIP) install --quiet --editable '.[test,lint]'
	@touch $@

venv: $(BIN)/.lint

# A process per core: each begins with a part of the files and takes from the others when it is done.
test: $(BIN)/.test
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

check: $(BIN)/.lint
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

format: $(BIN)/.lint
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

coverage: $(BIN)/.test
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered $(ARGS)

demo: $(BIN)/.test
	$(BIN)/python examples/demo.py $(ARGS)

soak: $(BIN)/.test
	SOAK=10 $(BIN)/python -m pytest -m soak $(ARGS)

bench: $(BIN)/.test
	$(BIN)/python -m interop.bench $(ARGS)

# Needs Podman or Docker; on a Debian machine root gets Podman installed. The first time takes minutes: it makes images.
interop: $(BIN)/.test
	$(BIN)/python -m interop run $(ARGS)

# Arguments for pytest stand behind --: make interop-suite ARGS="-- -k rekey"
interop-suite: $(BIN)/.test
	$(BIN)/python -m interop.suite $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
