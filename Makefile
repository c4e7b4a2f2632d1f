# Two commands: `make quickstart` runs the main job, `make test` runs the tests. Both set up what is missing.
PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip

.PHONY: quickstart test netem browser vllm slow lock clean help

help:
	@echo "make quickstart  run naive cross-DC against PDD on this machine and report (about 3 minutes)"
	@echo "make test        lint, types, import rules, unit and live tests, through tox"
	@echo "make netem       tests on real netem, by user-mode-linux where the kernel has none (root)"
	@echo "make browser     tests of the HTML report in headless Chromium"
	@echo "make vllm        install the vLLM extra into .venv-vllm and test it"
	@echo "make slow        statistical and large-scale checks"
	@echo "make lock        pin the newest versions that pyproject.toml allows"

quickstart: $(VENV)/.run
	$(BIN)/pddbench run experiments/quickstart.toml

test: $(VENV)/.dev
	$(BIN)/tox

netem browser slow: $(VENV)/.dev
	$(BIN)/tox -e $@

$(BIN)/uv:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON): needs Python >= 3.11 with venv (Debian: apt install python3-venv)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/uv
	test -e $(VENV)/.dev || $(UV) install --quiet --require-hashes -r requirements/run.txt
	$(UV) install --quiet --no-deps -e .
	touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(BIN)/uv
	$(UV) install --quiet --require-hashes -r requirements/dev.txt
	$(UV) install --quiet --no-deps -e .
	touch $@

lock: | $(BIN)/uv
	$(UV) compile -q --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
	  pyproject.toml -o requirements/run.txt
	$(UV) compile -q --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
	  --extra dev pyproject.toml -o requirements/dev.txt

clean:
	rm -rf $(VENV) .venv-vllm .tox
