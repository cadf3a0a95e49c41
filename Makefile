# kblockd: `make demo` and `make test` each do all the set-up that they need on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := .tools
STAMP := $(VENV)/.installed
BUF := $(TOOLS)/npm/node_modules/.bin/buf
EVERYTHING := $(TOOLS)/npm/node_modules/@modelcontextprotocol/server-everything
NPM := $(shell command -v npm 2>/dev/null)
BUF_VERSION := 1.75.0
EVERYTHING_VERSION := 2026.8.31
OPA := $(TOOLS)/bin/opa
GO := $(shell command -v go 2>/dev/null)
OPA_VERSION := v1.22.3

.PHONY: demo test lint unit bench soak fuzz proto tools opa lock clean

demo: $(STAMP)
	$(BIN)/python -m tests.demo.run

test: $(STAMP) tools lint unit

unit:
	$(BIN)/pytest -q -n 2 --dist loadfile

lint: $(STAMP) tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@if [ -x $(BUF) ]; then $(BUF) lint proto; else echo "buf lint skipped: Node.js is missing"; fi

bench: $(STAMP)
	$(BIN)/python -m tests.bench.run

proto: $(STAMP)
	$(BIN)/python proto/build_stubs.py

# Real counterparts, kept in an ignored folder; without Node.js or Go their tests skip with the reason.
tools: opa
ifneq ($(NPM),)
	@[ -x $(BUF) ] && [ -d $(EVERYTHING) ] || npm install --silent --no-audit --no-fund --prefix $(TOOLS)/npm \
	  @bufbuild/buf@$(BUF_VERSION) @modelcontextprotocol/server-everything@$(EVERYTHING_VERSION)
endif

# The real OPA, by its module path through the ordinary Go client (about 90 s when cold).
opa:
ifneq ($(GO),)
	@[ -x $(OPA) ] || GOBIN=$(CURDIR)/$(TOOLS)/bin CGO_ENABLED=0 $(GO) install github.com/open-policy-agent/opa@$(OPA_VERSION)
endif

# An hour rather than minutes: every power loss, every damage, 200 kills under load, 10^5 executions on flat memory.
soak: $(STAMP) tools
	$(BIN)/pytest -q -n 2 --dist loadfile -m soak --timeout 3600
	$(BIN)/python -m tests.crash.damage.table
	$(BIN)/python -m tests.soak.flat
	$(BIN)/python -m tests.soak.hostile_day

fuzz: $(STAMP)
	$(BIN)/python -m tests.security.hostile.fuzz --seconds 120

$(STAMP): .requirements.lock pyproject.toml plugins/mcp/pyproject.toml plugins/http/pyproject.toml proto/build_stubs.py $(wildcard proto/kblock/v1/*.proto)
	@$(if $(wildcard $(BIN)/pip),true,$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
	  || { echo "$(PYTHON) is no Python 3.11 to 3.14; name one: make demo PYTHON=python3.12"; exit 1; })
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .requirements.lock
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e plugins/mcp -e plugins/http
	@touch $(STAMP)

# Renews the pinned versions and their hashes (needs uv on the PATH); no address of an index is written.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --no-header --no-annotate --no-emit-package kblockd pyproject.toml --group pyproject.toml:dev -o .requirements.lock

clean:
	rm -rf $(VENV) $(TOOLS) kblockd/_proto
