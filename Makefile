# Two commands: `make quickstart` runs the main job, `make test` runs the tests. Both set up what is missing.
PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip
VLLM := .venv-vllm

.PHONY: quickstart test netem browser vllm test-vllm slow agreement lock clean help

help:
	@echo "make quickstart  run naive cross-DC against PDD on this machine and report (about 3 minutes)"
	@echo "make test        lint, types, import rules, unit and live tests, through tox"
	@echo "make netem       tests on real netem, by user-mode-linux where the kernel has none (root)"
	@echo "make browser     tests of the HTML report in headless Chromium"
	@echo "make vllm        install vLLM for the CPU into .venv-vllm; then: .venv-vllm/bin/pddbench run experiments/vllm-modes.toml"
	@echo "make test-vllm   the engine conformance suite, kill table and connector tests on vLLM"
	@echo "make slow        statistical and large-scale checks"
	@echo "make agreement   virtual time held against live workers, on a machine with nothing else to do"
	@echo "make lock        pin the newest versions that pyproject.toml allows"

quickstart: $(VENV)/.run
	$(BIN)/pddbench run experiments/quickstart.toml

test: $(VENV)/.dev
	$(BIN)/tox

netem browser slow agreement: $(VENV)/.dev
	$(BIN)/tox -e $@

vllm: $(VLLM)/.ready

test-vllm: $(VENV)/.dev $(VLLM)/.ready
	$(BIN)/tox -e vllm

$(BIN)/uv:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON): needs Python >= 3.11 with venv (Debian: apt install python3-venv)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/uv
	test -e $(VENV)/.dev || $(UV) install --quiet --python $(BIN)/python --require-hashes -r requirements/run.txt
	$(UV) install --quiet --python $(BIN)/python --no-deps -e .
	touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(BIN)/uv
	$(UV) install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(UV) install --quiet --python $(BIN)/python --no-deps -e .
	touch $@

# torch first, from where pip is told to look, else from the index of CPU builds that uv knows.
$(VLLM)/.ready: requirements/vllm.txt pyproject.toml | $(BIN)/uv
	$(PYTHON) -m venv $(VLLM)
	$(UV) install --quiet --python $(VLLM) --no-deps \
	  $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--torch-backend cpu) torch==2.13.0
	$(UV) install --quiet --python $(VLLM) --no-deps --require-hashes -r requirements/vllm.txt
	$(UV) install --quiet --python $(VLLM) --no-deps -e .
	touch $@

lock: | $(BIN)/uv
	$(UV) compile -q --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
	  pyproject.toml -o requirements/run.txt
	$(UV) compile -q --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
	  --extra dev pyproject.toml -o requirements/dev.txt
	$(UV) compile -q --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
	  $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--torch-backend cpu) --no-emit-package torch \
	  --override requirements/vllm-overrides.txt --extra dev pyproject.toml requirements/vllm.in -o requirements/vllm.txt

clean:
	rm -rf $(VENV) $(VLLM) .tox
