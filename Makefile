# make demo   run the bundled study on this machine and print its report
# make test   every test
# make hosts  the tests on real hosts: Linux, root, openssh-server (a part of make test where these are there)
# make check  style, types, layering, and that the locks are current
# make lock   resolve the locks again after a change of pyproject.toml
# Each target makes its own environment in .venv from exactly the locked hashes; nothing outside this folder is changed.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PY := .venv/bin/python
STAMP := .venv/.installed

.PHONY: help setup demo test ray hosts check lock format clean

help:
	@sed -n 's/^# //p' Makefile | head -6

setup: $(STAMP)

$(STAMP): requirements-dev.lock pyproject.toml .ci/setup.sh
	@bash .ci/setup.sh
	@touch $@

demo: $(STAMP)
	@.venv/bin/fleet demo

# A file's tests share fixtures, so a file stays on one process. What starts Ray mostly waits: two of those run side by side.
test: $(STAMP)
	@$(PY) -m pytest -n 2 --dist loadfile --ignore tests/cluster --ignore tests/e2e/fleet --ignore tests/hosts
	@if [ "$$(id -u)" = 0 ] && command -v ip >/dev/null && command -v sshd >/dev/null; \
	then $(MAKE) --no-print-directory --jobs 2 --output-sync=target ray hosts; \
	else $(MAKE) --no-print-directory ray; \
	echo "left out: make hosts (network namespaces with an sshd each; needs root on Linux, openssh-server, iproute2)"; fi

ray: $(STAMP)
	@$(PY) -m pytest tests/cluster tests/e2e/fleet

hosts: $(STAMP)
	@$(PY) -m pytest tests/hosts

check: $(STAMP)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@.venv/bin/basedpyright --level error
	@.venv/bin/lint-imports
	@bash .ci/lock.sh --check

format: $(STAMP)
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

lock:
	@bash .ci/lock.sh

clean:
	rm -rf .venv .tools .pytest_cache .ruff_cache
