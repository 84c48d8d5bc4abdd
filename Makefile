# Two commands matter: `make demo` and `make test`. Both set up what they need.
VENV ?= .venv
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(if $(shell command -v $(p)),$(p))))
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ARGS ?=

.PHONY: help redis-server setup demo demo-fleet demo-tiers serve test test-vllm check soak bench bench-engine \
        bench-blocks bench-pool bench-render bench-reuse bench-check bench-index bench-decision \
        bench-gateway docs clean

help:  ## say what each target does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.complete  ## make .venv with everything `make test` needs

# pip 25.1 is the first that knows dependency groups.
$(VENV)/.complete: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(PIP_INSTALL) --editable ".[all]" --group dev
	touch $@

demo: setup  ## a conversation on real weights, with reuse and without
	$(BIN)/warmturn demo $(ARGS)

demo-fleet: setup  ## two engines behind the gateway, round robin beside KV-aware
	$(BIN)/warmturn demo-fleet $(ARGS)

demo-tiers: setup redis-server  ## a conversation comes back from host, disk, Redis, or recomputed
	$(BIN)/warmturn demo-tiers $(ARGS)

serve: setup  ## one embedded engine on http://127.0.0.1:8000/v1
	$(BIN)/warmturn engine --port 8000 --exact-continuation $(ARGS)

check: setup  ## lint, format, types, import contract, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

redis-server:  # for the tests of the shared tier; without it they are skipped and say so
	@command -v redis-server >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq redis-server; } >/dev/null 2>&1 \
	  || echo "redis-server is missing and could not be installed: no test of the Redis tier runs"

test: check redis-server  ## every test: lint, types, contract, unit, end to end
	$(BIN)/warmturn model fetch
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 $(ARGS)
	$(BIN)/python -m pytest -m slow --durations 10 $(ARGS)

# An environment of its own, made on first use under ~/.cache/warmturn; where vLLM cannot run, this
# fails and says NOT RUN, unless WARMTURN_WITHOUT_VLLM=1 accepts that.
test-vllm: setup  ## the tests against real vLLM servers (CPU build, 15 minutes at most)
	$(BIN)/warmturn model fetch
	$(BIN)/python tests/vllm/lane.py $(ARGS)

soak: setup  ## the same properties with twenty times the examples
	WARMTURN_SOAK=20 $(BIN)/python -m pytest -m "not slow" --timeout 3600 $(ARGS)

bench: bench-pool bench-blocks bench-index bench-decision bench-render bench-engine bench-reuse  ## every benchmark

bench-engine: setup  ## prefill, decode, reuse beside transformers
	$(BIN)/python benchmarks/engine.py $(ARGS)

bench-reuse: setup  ## the seed shape's last turn, with reuse and without
	$(BIN)/python benchmarks/reuse.py $(ARGS)

bench-blocks: setup  ## hash chains beside a bare hashlib loop
	$(BIN)/python benchmarks/blocks.py $(ARGS)

bench-pool: setup  ## match, allocate and release
	$(BIN)/python benchmarks/pool.py $(ARGS)

bench-check: setup  ## the checker beside kvlint and prefixguard
	$(BIN)/python benchmarks/check.py $(ARGS)

bench-index: setup  ## the fleet's index beside Dynamo's RadixTree
	$(BIN)/python benchmarks/index.py $(ARGS)

bench-render: setup  ## incremental tokenising beside one whole encode
	$(BIN)/python benchmarks/render.py $(ARGS)

bench-decision: setup  ## a routing decision, by affinity and by what replicas hold
	$(BIN)/python benchmarks/decision.py $(ARGS)

bench-gateway: setup  ## the gateway beside vllm-router and sglang-router
	$(BIN)/python benchmarks/gateway.py $(ARGS)

docs: setup  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

clean:  ## remove what set-up and tests made
	rm -rf $(VENV) site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
