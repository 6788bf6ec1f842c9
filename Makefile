# Needs Python 3.11 or later and make; everything else comes into .venv by itself.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# The versions that were tried last, see `make lock`; `make LOCK= ...` takes the newest.
LOCK ?= $(wildcard dev.lock)
# Of the benchmarks: --quick, --publish, --only http,start
OPTIONS ?=
# One more than there are cores: many tests wait for a process or a clock.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + max(2, os.cpu_count() or 2))' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test heavy check conformance bench docs fuzz chaos coverage audit dist lock clean chromium nginx

# Hundreds of processes import the package in a run of the tests: they share its compiled modules.
unexport PYTHONDONTWRITEBYTECODE
# The browser for the tests of pages, unless one of these names is on the PATH: make heavy CHROMIUM=/path/to/chromium
export CHROMIUM

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed ## serve the sample, call it, print the exchange
	$(PY) examples/demo.py

test: $(VENV)/.ready ## run the tests, the official clients among them
	$(PY) -m pytest -q -n $(WORKERS) --dist loadfile -m "not heavy"

heavy: $(VENV)/.ready chromium nginx ## run the tests that take long: every example with every official SDK, instances, leaks, more examples
	$(PY) -m pytest -q -n 2 --dist loadfile -m heavy
	$(PY) -m pytest -q -n $(WORKERS) --dist loadfile -m "hypothesis and not heavy" --hypothesis-profile=thorough

check: $(VENV)/.ready ## lint, formatting and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m basedpyright

conformance: $(VENV)/.ready ## run the official conformance suite
	$(PY) scripts/conformance.py

bench: $(VENV)/.ready ## measure against the official SDKs, FastMCP, mcp-lite and bare ASGI; OPTIONS=--publish writes the pages
	$(PY) benchmarks/run.py $(OPTIONS)

docs: $(VENV)/.ready ## run every code block of the documentation, and build the site into build/site
	$(PY) -m pytest -q -n $(WORKERS) tests/docs/test_docs.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet

fuzz: $(VENV)/.ready ## try a million spoiled tokens
	$(PY) scripts/fuzz.py

chaos: $(VENV)/.ready ## run 500 conversations while servers and their store are killed; the report is in build/chaos
	$(PY) chaos/run.py

# Left out: the tests of what a process imports, which under coverage is more.
coverage: $(VENV)/.ready ## measure which lines the everyday tests run; fails below the floor in pyproject.toml
	rm -rf build/coverage && mkdir -p build/coverage
	$(PY) -m coverage run -m pytest -q -n $(WORKERS) --dist loadfile -m "not heavy" \
	  --deselect tests/client/test_start.py --deselect "tests/docs/test_docs.py::test_a_page_does_what_it_says[docs/design.md]" \
	  --deselect tests/cli/test_serve.py::test_standard_streams_need_no_http_server
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report --skip-covered --sort=cover

audit: $(VENV)/.ready ## look up known vulnerabilities of what is installed; needs PyPI itself, a mirror does not know them
	$(PY) -m pip install -q --disable-pip-version-check --group audit
	$(PY) -m pip_audit --strict --skip-editable

dist: $(VENV)/.ready ## build the wheel and the sdist into dist
	rm -rf dist
	$(PY) -m build

lock: $(VENV)/.ready ## write what is installed into dev.lock, which the next installation takes
	$(PY) -m pip freeze --exclude-editable > dev.lock

clean: ## remove what make made
	rm -rf $(VENV) .venv-* .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/results dist build

chromium:
	@if [ -n "$$CHROMIUM" ]; then \
	  command -v "$$CHROMIUM" >/dev/null || { echo "CHROMIUM is '$$CHROMIUM', which cannot be run" >&2; exit 1; }; \
	elif ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core; \
	  else \
	    echo "The tests of pages need Chromium. Install it ('sudo apt-get install chromium' on Debian)," >&2; \
	    echo "or name one: make heavy CHROMIUM=/path/to/chromium" >&2; exit 1; \
	  fi; \
	fi

nginx:
	@if ! command -v nginx >/dev/null && ! test -x /usr/sbin/nginx; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && apt-get install -q -y --no-install-recommends nginx-light; \
	  else \
	    echo "The tests of deployments need nginx. Install it ('sudo apt-get install nginx-light' on Debian)." >&2; exit 1; \
	  fi; \
	fi

# What users install, which is all that the demo needs.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Antiphon needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing antiphon into $(VENV), once"
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --disable-pip-version-check -e .
	@touch $@

$(VENV)/.ready: $(VENV)/.installed
	@echo "Installing the tools and the peers of the tests into $(VENV), once: this takes a minute or two"
	@$(PY) -m pip install --help | grep -q -e '--group' || $(PY) -m pip install -q --upgrade 'pip>=25.1'
	$(PY) -m pip install --disable-pip-version-check --group dev $(if $(LOCK),-c $(LOCK))
	@touch $@
