# Stillpoint. "make help" lists the targets; CONTRIBUTING.md says when to run which.

MODULE  := github.com/stillpoint-operator/stillpoint
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE   ?= ghcr.io/stillpoint-operator/stillpoint:$(VERSION)
CLUSTER := go run ./test/cluster/cmd/localcluster
PLATFORMS ?= linux/$(shell go env GOARCH)
GO_TEST_FLAGS ?=

# Tools are Go programs too, each pinned in a module of its own.
GOLANGCI := go tool -modfile=hack/tools/golangci-lint/go.mod golangci-lint
STAGE    := hack/stage.sh

.DEFAULT_GOAL := help
.SUFFIXES:

##@ Everyday

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "; print "make TARGET"} /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ## Build the operator as bin/stillpoint, and the plugin as bin/kubectl-stillpoint
	@hack/build.sh '$(VERSION)' bin/stillpoint .
	@hack/build.sh '$(VERSION)' bin/kubectl-stillpoint ./cmd/kubectl-stillpoint

.PHONY: generate
generate: ## Write the generated files: deep copies, CRDs, their copies in config/default and the chart, the plugin's reference
	@hack/generate.sh .

.PHONY: tidy
tidy: ## go mod tidy
	go mod tidy

##@ Tests

.PHONY: test
test: check fuzz-short integration e2e ## Everything: check, a little fuzzing, integration, e2e (the first time about 30 minutes, most of it building the cluster)

.PHONY: check
check: unit lint verify ## The fast part: unit, lint, verify (under 5 minutes once the tools are built)

.PHONY: unit
unit: ## Unit tests, with the race detector
	@$(STAGE) unit hack/unit.sh $(GO_TEST_FLAGS)

.PHONY: lint
lint: ## golangci-lint over everything (builds it the first time: 2 minutes)
	@$(STAGE) lint $(GOLANGCI) run ./...

.PHONY: verify
verify: ## Generated files, go.mod, formatting, chart and kustomizations are as they should be
	@$(STAGE) verify hack/verify.sh

.PHONY: integration
integration: ## Tests against a real API server (builds it the first time: 8 minutes)
	@$(STAGE) integration hack/integration.sh $(GO_TEST_FLAGS)

.PHONY: bench
bench: ## Measure the operator against bare clients; BENCH="midnight requests" for some scenarios, BENCH_FLAGS=-save to keep the numbers (all: hours)
	@go run ./test/bench $(BENCH_FLAGS) $(BENCH)

.PHONY: crash
crash: ## Let every single call of the operator fail, go unanswered or be its last, in every kind of run (a real API server)
	@$(STAGE) crash hack/integration.sh -run TestTheOperatorFails -timeout 2h -crash.every=1 -crash.pairs=1000

.PHONY: e2e
e2e: ## Tests on the whole local cluster; starts it if it does not run, and stops only what it started (root)
	@$(STAGE) e2e hack/e2e.sh $(GO_TEST_FLAGS)

.PHONY: torture
torture: ## Kill the operator 200 times at chosen and random moments, under load on the local cluster (30 minutes, root; make e2e does 20)
	@$(STAGE) torture hack/torture.sh $(GO_TEST_FLAGS)

.PHONY: explore
explore: ## Walk the state machine's histories with one fault more than make unit does (minutes)
	go test -count 1 -timeout 2h -v -run 'TestExplore$$' ./internal/run/ -explore 1

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 1m each); what one finds is kept below its testdata/fuzz
	@$(STAGE) fuzz hack/fuzz.sh

.PHONY: fuzz-short
fuzz-short: ## Every fuzz target for a moment, all together about a minute: a part of make test
	@$(STAGE) fuzz-short hack/fuzz.sh total:40s

.PHONY: cluster-test
cluster-test: ## Tests of the local cluster itself: they kill and freeze its parts (root)
	@$(STAGE) cluster-test go test -tags cluster -count 1 -timeout 30m $(GO_TEST_FLAGS) ./test/cluster/

##@ The local cluster

.PHONY: demo
demo: ## Watch a PostgreSQL being quiesced, snapshotted, released and restored (root; the first time about 20 minutes)
	@go run ./hack/demo

.PHONY: demo-down
demo-down: ## Take away what make demo left running
	@go run ./hack/demo down

.PHONY: cluster-up
cluster-up: ## Start the local cluster (root; the first time about 15 minutes, then 12 seconds)
	@$(CLUSTER) up

.PHONY: cluster-down
cluster-down: ## Stop the local cluster and remove its data
	@$(CLUSTER) down

##@ Delivery

.PHONY: docs
docs: ## Build the pages of docs/ as a site in dist/site (npm)
	@hack/docs.sh

.PHONY: image
image: ## Build the container image IMAGE with docker, podman or buildah, whichever is there; PLATFORMS=linux/amd64,linux/arm64 for more than this machine's
	@hack/image.sh '$(IMAGE)' '$(VERSION)' '$(PLATFORMS)'

.PHONY: release
release: ## Leave a release in dist/release: plugin, operator, chart, install.yaml, SBOM, checksums (minutes: it builds for six platforms)
	@hack/release.sh '$(VERSION)'
