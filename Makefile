# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Every module is checked on its own: that they build without the workspace is
# part of what is promised.
MODULES := . cdi-contract dra-frontend nri-actuator test test/cluster tools/release
# A failure in one module does not end the run. The failed modules are listed at the end.
each = failed=; for m in $(MODULES); do echo "== $(1): $$m"; (cd $$m && export GOWORK=off && $(2)) || failed="$$failed $$m"; done; \
	[ -z "$$failed" ] || { echo "== $(1) failed in:$$failed" >&2; exit 1; }
BIN := bin
LINT := $(CURDIR)/$(BIN)/golangci-lint
export CGO_ENABLED ?= 0
export GOTOOLCHAIN ?= local
# A run on a small machine compiles as much as it tests: give slow tests time.
# Most tests wait for another process, so more of them run than there are CPUs.
TEST_FLAGS ?= -timeout 20m -parallel 6
E2E_FLAGS ?=
RUN ?= .

##@ Use

.PHONY: demo
demo: ## Show the whole path on a cluster in virtual machines made for it (root, Debian)
	./test/cluster/demo.sh

.PHONY: recording
recording: ## Run the demo and make the README's picture of it (root, Debian)
	mkdir -p _output
	./test/cluster/demo.sh > _output/demo.log
	cd test/cluster && GOWORK=off go run ./cmd/recording < ../../_output/demo.log > ../../_output/demo.svg
	mv _output/demo.svg docs/getting-started/demo.svg

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*##/ {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

# Without the web pages of gRPC's traces, whose templates call methods by name: with
# them the linker keeps every method of every API type, 29 MB of the frontend.
TAGS := grpcnotrace

.PHONY: build
build: ## Build the daemons, static, into bin/
	go build -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN)/ ./cmd/...

IMAGE_PREFIX ?= dra-cpumem
IMAGE_TAG ?= $(VERSION)
CONTAINER_TOOL ?= $(or $(shell command -v buildah),$(shell command -v podman),$(shell command -v docker),buildah)

.PHONY: images
images: build ## Build both images with buildah, podman or docker (CONTAINER_TOOL)
	$(CONTAINER_TOOL) build -f Dockerfile.frontend -t $(IMAGE_PREFIX)/dra-frontend:$(IMAGE_TAG) .
	$(CONTAINER_TOOL) build -f Dockerfile.actuator -t $(IMAGE_PREFIX)/nri-actuator:$(IMAGE_TAG) .

REPOSITORY ?=

.PHONY: release
release: ## Build a release into _output/release: images for amd64 and arm64, chart, tool, bills of materials (VERSION=v0.2.0); push it with REPOSITORY=registry/path
	rm -rf $(CURDIR)/_output/release
	cd tools/release && GOWORK=off go run . -version $(VERSION) $(if $(REPOSITORY),-repository $(REPOSITORY) -push)

.PHONY: format
format: $(LINT) ## Format the code and sort its imports
	@$(call each,format,$(LINT) fmt ./...)

.PHONY: generate
generate: ## Write generated files: JSON Schemas, the chart's defaults, the table of the configuration
	cd test && go run ./generate

##@ Check

.PHONY: test
test: test-race test-plain ## Unit, contract, lab and chart tests, with the race detector where the daemons' code runs; the documentation

# The race detector needs every package compiled once more. The other packages of module
# test read files and run programs.
RACED := contract|disk|explore|kernel|lab

# Without the cache of results (-count=1): it does not see that a file outside of the
# module, a page or the chart, has changed.
.PHONY: test-race
test-race: export CGO_ENABLED = 1
test-race: MODULES := . cdi-contract dra-frontend nri-actuator test
test-race:
	@command -v $${CC:-gcc} >/dev/null || { echo "the race detector needs a C compiler: apt-get install gcc libc6-dev" >&2; exit 1; }
	@$(call each,test with the race detector,packages=$$(go list ./... | if [ $$m = test ]; then grep -E '/test/($(RACED))(/|$$)'; else cat; fi) && \
		go test -race -count=1 $(TEST_FLAGS) $$packages)

.PHONY: test-plain
test-plain: MODULES := test test/cluster test/kubernetes tools/release
test-plain:
	@$(call each,test,packages=$$(go list ./... | if [ $$m = test ]; then grep -vE '/test/($(RACED))(/|$$)'; else cat; fi) && \
		go test -count=1 $(TEST_FLAGS) $$packages)

# Targets that compile a part of Kubernetes, which takes minutes the first time, do so as
# the cluster's programs are built (test/cluster/build.go): a package is compiled once.
COMPILED_ONCE := test-plain verify-placement verify-pages
$(COMPILED_ONCE): export CGO_ENABLED = 0
$(COMPILED_ONCE): export GOFLAGS = -trimpath -gcflags=all=-dwarf=false

# A number of inputs, which does not depend on the machine's speed, or a time.
FUZZTIME ?= 2000x

.PHONY: fuzz
# The release reads this repository alone.
fuzz: MODULES := $(filter-out tools/release,$(MODULES))
fuzz: ## Try new inputs on each fuzz target: FUZZTIME=2000x inputs, or for FUZZTIME=1m
	@$(call each,fuzz,$(CURDIR)/test/fuzz.sh $(FUZZTIME))

.PHONY: e2e
e2e: ## The cluster cases on a cluster in virtual machines (root, Debian); RUN=regexp selects; KERNEL=stable|backports|newest for all nodes
	./test/cluster/e2e.sh -run '$(RUN)' $(E2E_FLAGS)

# Module, package, the packages whose tests must notice a change of it, and a flag.
MUTATED ?= cdi-contract:.:. cdi-contract:cdidir:cdidir cdi-contract:atomicfile:atomicfile \
	nri-actuator:claims:claims nri-actuator:tree:tree nri-actuator:guard:guard nri-actuator:guard/installation:guard/installation \
	dra-frontend:ledger:ledger dra-frontend:decision:decision,kubelet dra-frontend:partition:partition,decision \
	dra-frontend:nodestate:nodestate dra-frontend:memoryqos:memoryqos dra-frontend:placement:placement \
	nri-actuator:enforce:nri,../test/explore:-sample=120

.PHONY: mutate
mutate: ## Change the core packages, a change at a time, and list what no test notices (an hour); MUTATED selects
	@cd test && go build -o ../$(BIN)/mutate ./mutate && failed=; for p in $(MUTATED); do IFS=:; set -- $$p; unset IFS; \
		../$(BIN)/mutate -module ../$$1 -package $$2 -tests $$3 $${4-} || failed="$$failed $$1/$$2"; done; \
		[ -z "$$failed" ] || { echo "mutate failed in:$$failed" >&2; exit 1; }

.PHONY: prove
prove: prove-protocol prove-actions prove-kernels prove-isolated mutate ## All that docs/explanation/proof.md is about, in its long form (hours; root, Debian)

# Actions in a history of the search (16 times longer for each more), and histories of 67 to 77 actions on each kernel.
DEPTH ?= 3
HISTORIES ?= 5000

.PHONY: prove-actions
prove-actions: ## Run both daemons' code on the model of the kernel, in all orders of DEPTH actions and in HISTORIES random histories
	cd test && go test -v -count=1 -timeout 12h ./explore -args -depth $(DEPTH) -rapid.checks $(HISTORIES)

OPERATIONS ?= 100000
KERNELS ?= stable,backports,newest

.PHONY: prove-kernels
prove-kernels: ## Compare the model of the kernel with real kernels in virtual machines (root, Debian); KERNELS, OPERATIONS on each
	cd test/cluster && GOWORK=off go run ./cmd/kernels -kernels $(KERNELS) -operations $(OPERATIONS)

CYCLES ?= 100
MOVERS ?= 4
# Seconds after which a write that has not returned is killed (0: never), and what ends a partition: rmdir or member.
PATIENCE ?= 0
END ?= rmdir

.PHONY: prove-isolated
prove-isolated: ## Make CYCLES isolated partitions beside moved processes on real kernels in virtual machines (root, Debian); KERNELS
	cd test/cluster && GOWORK=off go run ./cmd/deadlock -kernels $(KERNELS) -cycles $(CYCLES) -movers $(MOVERS) \
		-patience $(PATIENCE) -end $(END)

# Benchmarks by module and package. A number of repetitions does not depend on the machine. The lab has fewer: client-go's
# fake API server keeps each watch for good, and each claim has one.
BENCHMARKS ?= cdi-contract:.:. dra-frontend:./placement:.:1000x dra-frontend:./topology:. nri-actuator:./tree:. \
	nri-actuator:./nri:CreateContainer:1000x nri-actuator:./nri:Control:1000x nri-actuator:./nri:Apply nri-actuator:./nri:Synchronize \
	test:./lab:Prepare/one:200x test:./lab:Control:200x test:./lab:Prepare/110:20x test:./lab:Recovery:20x \
	test:./lab:RuntimeRefresh:20x .:./cmd/cpumem-guard:Guard
BENCHTIME ?= 100x
# A host is not equally fast all the time, so the whole list is measured several times.
ROUNDS ?= 3

.PHONY: bench
bench: ## Measure both daemons' operations on this machine; writes docs/explanation/performance.md
	@mkdir -p _output; for round in $$(seq $(ROUNDS)); do for p in $(BENCHMARKS); do IFS=:; set -- $$p; unset IFS; \
		(cd $$1 && GOWORK=off go test $$2 -run '^$$' -bench $$3 -benchmem -benchtime $${4:-$(BENCHTIME)} -timeout 60m); done; done | tee _output/bench.txt
	cd test && GOWORK=off go run ./benchmarks < ../_output/bench.txt

.PHONY: bench-placement
bench-placement: ## Compare placement with kubelet's static policy: quality and speed (compiles kubelet)
	@cd test/placement && GOWORK=off go run .

# MEASURE=regexp measures a part, PROFILES=directory keeps profiles, which change the numbers: neither writes the page.
MEASURE ?=
PROFILES ?=

.PHONY: bench-scheduler
bench-scheduler: ## Measure the real scheduler on up to 2000 nodes that are objects only (root, Debian; half an hour); writes docs/explanation/scale.md
	@mkdir -p _output $(PROFILES)
	cd test/cluster && GOWORK=off go run ./cmd/scheduling -run '$(MEASURE)' -profiles '$(abspath $(PROFILES))'

.PHONY: bench-fleet
bench-fleet: ## Measure the start of the publishers of up to 15,000 nodes (root, Debian; half an hour); writes docs/explanation/scale.md
	cd test/cluster && GOWORK=off go run ./cmd/fleet

.PHONY: bench-memory
bench-memory: ## Show memory protection and limits under pressure on a cluster (root, Debian); writes docs/explanation/memory-pressure.*
	@. test/cluster/images.sh; IMAGES_DIR=$(CURDIR)/_output/bench-images build_images $(CURDIR) bench; \
	cd test/cluster && GOWORK=off go run ./cmd/pressure -images "$$IMAGES" -tag bench -logs $(CURDIR)/_output/bench-logs

# The cluster of the cases serves metrics. The cases that run meanwhile make claims.
.PHONY: dashboard
dashboard: ## Run cluster cases and draw the dashboard over them (root, Debian); writes docs/reference/dashboard.svg
	$(MAKE) e2e KEEP=1 RUN=TestKernels
	cd test && GOWORK=off go build -o $(CURDIR)/$(BIN)/dashboard ./dashboard
	cd test && KUBECONFIG=$${CPUMEM_CLUSTER_DIR:-$(CURDIR)/_output/cluster}/run/kubeconfig $(CURDIR)/$(BIN)/dashboard \
		-for 5m -every 5s > $(CURDIR)/_output/dashboard.svg & \
	$(MAKE) e2e KEEP=1 REUSE=1 RUN='TestPages|TestRecipes|TestTool|TestExclusive_Observers'; wait $$!
	mv _output/dashboard.svg docs/reference/dashboard.svg
	$(MAKE) cluster-down

.PHONY: bench-isolation
bench-isolation: ## Show what exclusive CPUs are worth on a cluster (root, Debian); writes docs/explanation/isolation-latency-*
	@. test/cluster/images.sh; IMAGES_DIR=$(CURDIR)/_output/bench-images build_images $(CURDIR) bench; \
	cd test/cluster && for kernel in newest backports stable; do \
		GOWORK=off go run ./cmd/isolation -images "$$IMAGES" -tag bench -logs $(CURDIR)/_output/bench-logs \
			-kernel $$kernel $(if $(DURATION),-duration $(DURATION)); done

# PEER=directory compares with another driver: its image archives *.tar, install.yaml, and pod.yaml with a pod and its claim of
# 2 CPUs, in which NAME stands for the pod's name. LEVELS are the numbers of containers beside the pod. ONLY is the contender to
# measure (driver, static or peer), empty for all. REPETITIONS are the starts of each kind beside each number of containers.
PEER ?=
ONLY ?=
REPETITIONS ?= 8
LEVELS ?= 0,20,40,80,200

.PHONY: bench-footprint
bench-footprint: build ## Measure what both daemons take, and what a pod's start waits for, on this host and on a cluster (root, Debian); writes docs/explanation/performance.md
	cd test/cluster && GOWORK=off go run ./cmd/footprint
	LONG=1 PREVIOUS= PAGE=$(CURDIR)/docs/explanation/performance.md $(MAKE) e2e KERNEL=newest RUN='^(TestFootprint|TestStartSplits)$$'

.PHONY: bench-churn
bench-churn: ## Start and remove pods with claims on a cluster, and show that nothing grows (root, Debian); writes docs/explanation/performance.md and churn.svg
	LONG=1 PREVIOUS= PAGE=$(CURDIR)/docs/explanation/performance.md $(MAKE) e2e RUN='^TestChurn$$' E2E_FLAGS='-parallel 4'

.PHONY: bench-peers
bench-peers: ## Compare starts of pods with those of kubelet's static policy and of the driver in PEER (root, Debian; hours); writes docs/explanation/isolation-report.md
	@. test/cluster/images.sh; IMAGES_DIR=$(CURDIR)/_output/bench-images build_images $(CURDIR) bench; \
	peer=$(if $(PEER),$$(realpath -s "$(PEER)")) && cd test/cluster && GOWORK=off go run ./cmd/peers -images "$$IMAGES" -tag bench \
		-logs $(CURDIR)/_output/bench-logs -levels $(LEVELS) -repetitions $(REPETITIONS) -peer "$$peer" -only "$(ONLY)"

.PHONY: verify
verify: verify-format verify-lint verify-modules verify-placement verify-pages verify-protocol verify-generated verify-headers verify-vulnerabilities ## Format, lint, modules, protocol, generated files, headers

.PHONY: verify-format
verify-format:
	@files=$$(git ls-files '*.go') && [ -n "$$files" ] && out=$$(gofmt -l $$files) || exit 1; [ -z "$$out" ] || { echo "gofmt -w these: $$out"; exit 1; }

.PHONY: verify-lint
verify-lint: $(LINT)
	@$(call each,lint,$(LINT) run ./...)

$(LINT): tools/go.mod
	cd tools && GOWORK=off go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: verify-modules
verify-modules:
	@$(call each,build and tidy,go build -o /dev/null ./... && go mod tidy -diff)

# test/placement compiles kubelet, which takes minutes the first time. Its test
# runs here and not in "make test": it is about quality, not about correctness.
.PHONY: verify-placement
verify-placement: $(LINT)
	@cd test/placement && export GOWORK=off && go mod tidy -diff && $(LINT) run ./... && go test $(TEST_FLAGS) ./...

# Its test runs in "make test".
.PHONY: verify-pages
verify-pages: $(LINT)
	@cd test/kubernetes && export GOWORK=off && go mod tidy -diff && $(LINT) run ./...

# All states take a minute, so the test runs here and not in "make test".
PROTOCOL ?= TestProtocol

.PHONY: prove-protocol
prove-protocol: ## Search all states of the protocol, and break it in 14 ways to show that the search finds it
	@$(MAKE) verify-protocol PROTOCOL=.

.PHONY: verify-protocol
verify-protocol: ## Search all states of the protocol between the daemons (Debian packages spin and gcc)
	@for p in spin gcc; do command -v $$p >/dev/null || { echo "verify-protocol needs the package $$p: apt-get install $$p" >&2; exit 1; }; done
	@cd test && go test -count=1 -v -run '$(PROTOCOL)' ./protocol -exhaustive | grep -v '^=== '

.PHONY: verify-generated
verify-generated:
	cd test && go run ./generate -check

.PHONY: verify-headers
verify-headers:
	@out=$$(git ls-files '*.go' | while read -r f; do head -n 1 "$$f" | grep -q '^// SPDX-License-Identifier: Apache-2.0$$' || echo "$$f"; done); \
	[ -z "$$out" ] || { echo "these lack the licence header: $$out"; exit 1; }

.PHONY: verify-vulnerabilities
verify-vulnerabilities:
	@if ! command -v govulncheck >/dev/null; then echo "govulncheck is not installed: known vulnerabilities were not looked up"; \
	else $(call each,govulncheck,govulncheck ./...); fi

##@ Cluster

CLUSTER := cd test/cluster && GOWORK=off go run ./cmd/cluster

.PHONY: cluster-up
cluster-up: ## Start a cluster with a two-NUMA-node machine; prints KUBECONFIG
	$(CLUSTER) up

.PHONY: cluster-down
cluster-down: ## Stop it and clean up
	$(CLUSTER) down

.PHONY: clean
clean: ## Remove what was built
	@[ ! -e _output/cluster/run/up ] || { echo "a cluster is up in _output/cluster: end it with make cluster-down" >&2; exit 1; }
	rm -rf $(BIN) _output
