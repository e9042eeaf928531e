# Every target sets up .venv first, if that is not done yet. STACK=tff or STACK=language chooses the stack (docs/stacks.md),
# PYTHON=/path/to/python the Python, INSTALLER=pip the program that installs (scripts/setup-venv), V=1 shows its work.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-data test-tools test-slow test-processors smoke notebooks notebooks-check hospitals bench docs package lint format lock clean distclean

python := .venv/bin/python
PYTHON ?=
STACK ?=
V ?=
INSTALLER ?=
ARGS ?=
FLOWER ?=
JOBS ?= 2
export PYTHON STACK V INSTALLER
# What one process has compiled serves the others; tests start some fifty.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## make or renew .venv (2.9 GB; does nothing if it is up to date)
	@scripts/setup-venv

demo: setup ## train, compare and plot on the corpus that comes with the project, into runs/demo
	$(python) -m tff_re.run demo --out runs/demo

# What `make test` runs; the others have commands of their own.
FAST := not slow and not benchmark and not real_data and not tools

test: setup ## run the tests, without the slow ones, JOBS=2 files at once; ARGS="-k name" goes to pytest
	$(python) -m pytest -q -n $(JOBS) --dist loadgroup -m "$(FAST)" --durations 10 $(ARGS)

test-data: setup ## run the tests on the published corpora in the folder that TFF_RE_DATA names
	$(python) -m pytest -q -m "real_data and not slow and not benchmark" $(ARGS)

test-tools: setup ## run the tests of the benchmarks, of the set-up and of the CI scripts
	$(python) -m pytest -q -m "tools and not slow and not benchmark and not real_data" $(ARGS)

test-slow: setup ## run the slow tests
	$(python) -m pytest -q -m "slow and not benchmark" --durations 10 $(ARGS)

# What stands in for other processors: their kernels differ in the last bits.
# With SSE41 or AVX2 on a processor that has AVX-512, TensorFlow 2.14 ends with SIGSEGV in a bfloat16 product (it looks at the
# processor, oneDNN at the setting); the tests that compute in bfloat16 are left out there.
PROCESSORS ?= TF_ENABLE_ONEDNN_OPTS=0 ONEDNN_MAX_CPU_ISA=SSE41 ONEDNN_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX512_CORE \
	TF_NUM_INTRAOP_THREADS=1
test-processors: setup ## run the tests once for each setting of PROCESSORS; ARGS="tests/exporting/test_export.py" takes some
	@failed=; for setting in $(PROCESSORS); do \
	    echo "== $$setting"; \
	    case $$setting in *SSE41|*AVX2) but="and not bfloat16";; *) but=;; esac; \
	    env $$setting $(python) -m pytest -q -n $(JOBS) --dist loadgroup -m "$(FAST) $$but" $(ARGS) \
	        || failed="$$failed $$setting"; \
	done; if [ -n "$$failed" ]; then echo "failed with:$$failed"; exit 1; fi

smoke: setup ## try the command line as a user would type it
	@.ci/smoke

notebooks: setup ## run the notebooks and write what they show to docs/notebooks; ARGS=03 takes one
	$(python) -m notebooks.render $(ARGS)

notebooks-check: setup ## run the notebooks, top to bottom, and write nothing
	$(python) -m notebooks.render --check $(ARGS)

hospitals: setup ## train at three hospitals over Flower, and compare with the simulation; FLOWER=/path/to/bin replaces .flower
	@[ -n "$(FLOWER)" ] || env -u PYTHON scripts/setup-flower
	@$(python) .ci/three-hospitals

bench: setup ## measure time and memory; ARGS goes to the benchmarks
	$(python) -m benchmarks $(ARGS)

docs: ## build the pages as a site, strict, into build/site
	@scripts/setup-docs
	NO_MKDOCS_2_WARNING=1 .docs/bin/mkdocs build --quiet

package: setup ## build sdist and wheel, and install the wheel into a clean environment
	@.ci/package

lint: setup ## check style, format and types
	@scripts/setup-types
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	.types/bin/mypy

format: setup ## fix style and format automatically
	$(python) -m ruff check --fix .
	$(python) -m ruff format .

lock: ## write both locks from setup.cfg; ARGS=--upgrade takes newer versions
	@scripts/update-lock $(ARGS)

clean: ## remove caches and build files (keeps runs/ and .venv)
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -not -path './.flower/*' -not -path './.docs/*' -not -path './.types/*' -not -path './.python/*' -not -path './.uv/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv, .flower, .docs, .types, .python and .uv too
	rm -rf .venv .flower .docs .types .python .uv
