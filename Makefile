# Bartleby. "make" builds bin/bartleby; "make help" lists the rest.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BIN     := $(CURDIR)/bin

GOLANGCI_LINT := v2.15.0
GOVULNCHECK   := v1.1.4
NFPM          := v2.43.4
GORELEASER    := v2.15.4
CYCLONEDX     := v1.10.0
FUZZTIME      ?= 5s
SEEDS         ?= 300
CHECKS        ?= 300
SEED          ?= 0
# How long "make soak" simulates clusters, from a seed it never began with before.
SOAK          ?= 30m
# Episodes of "make conserve"; without a number it goes on until one fails, or for FOR.
EPISODES      ?=
FOR           ?= 1000h

# Every package but those without goroutines of their own whose tests would take long: the simulation
# of clusters and queues (guarded by their partition) run on one goroutine by design, repairs are
# a command's. -short leaves out seeds of the same tests on one goroutine. Of the suites those whose nodes
# are in the process of the test, and conserve, which plays a node that is built so.
RACE = . ./cmd/... ./test/peer ./test/twodrivers $$($(GO) list ./internal/... | grep -v -E '/internal/(sim|core/queue|run/repair)$$')

# All packages, and the suites whose nodes are in the process of the test: what waits with a lock held may be called from
# any. Results of packages that have nothing to check are those of "make test".
INVARIANTS := ./internal/... ./test/peer ./test/twodrivers

.PHONY: build console consoletest run test race invariants lint vuln bench brokerbench regress conformance conformance-more conformance10 rabbithole clientsuites interop openapi docs crash conserve twodrivers sim soak hostile scale stall fuzz generate deb debtest release clean help

build: console ## build bin/bartleby
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o $(BIN)/bartleby ./cmd/bartleby
	for tool in rabbitmqctl rabbitmqadmin rabbitmq-diagnostics rabbitmq-queues rabbitmq-upgrade rabbitmq-plugins; do ln -sf bartleby $(BIN)/$$tool; done

console: ## the pages of the console, which the binary gets; without Node 20 or newer it goes without
	scripts/console

consoletest: build ## the console in a real browser, Debian's chromium, in front of a node
	scripts/console check
	cd console && npm test

run: build ## run a node with its data in ./data
	$(BIN)/bartleby server

test: ## all tests that need nothing but Go
	$(GO) test -p 4 -timeout 20m ./...
	cd test/conformance && $(GO) vet .
	cd test/brokerbench && $(GO) vet .
	cd test/interop/go-amqp091 && $(GO) vet .
	cd test/interop/go-amqp && $(GO) vet .
	cd test/interop/watermill && $(GO) vet .
	cd test/goamqp && $(GO) vet . && $(GO) test . # the codec of AMQP 1.0 against another one
	cd test/embedded && $(GO) vet -mod=mod . && $(GO) test -mod=mod . # its go.mod follows this one's

race: ## all that has goroutines under the race detector, and a node for random clients
	$(GO) test -p 4 -timeout 20m -race -short $(RACE)
	$(GO) build -race -tags failpoints -o $(BIN)/race/bartleby ./cmd/bartleby
	GORACE=halt_on_error=1 $(GO) test -count=1 ./test/conserve -episodes 60 -bartleby $(BIN)/race/bartleby

invariants: ## queues are checked after every step and locks at every wait: all packages, and kills and random clients of such a node
	$(GO) test -p 4 -timeout 20m -tags invariants -short $(INVARIANTS)
	$(GO) build -tags 'invariants failpoints' -o $(BIN)/invariants/bartleby ./cmd/bartleby
	$(GO) test -count=1 ./test/crash -kills 8 -bartleby $(BIN)/invariants/bartleby
	$(GO) test -count=1 ./test/conserve -episodes 60 -bartleby $(BIN)/invariants/bartleby

lint: $(BIN)/golangci-lint ## golangci-lint over the whole tree
	$(BIN)/golangci-lint run ./...

vuln: $(BIN)/govulncheck ## known vulnerabilities in what is called
	$(BIN)/govulncheck ./...

bench: ## the benchmarks of publish, route, deliver, ack and append
	$(GO) test -run '^$$' -bench . -benchmem . ./internal/...

regress: build ## what a message costs beside the fixed commit in test/brokerbench/baseline, by turns
	scripts/regress $(BIN)/bartleby

conformance: build ## play RabbitMQ's transcripts, in strict and in default mode
	scripts/conformance $(BIN)/bartleby

conformance-more: build ## play what the public scenarios do not look at, in strict mode
	scripts/conformance $(BIN)/bartleby more

conformance10: build ## play RabbitMQ's transcripts of AMQP 1.0, in strict and in default mode
	scripts/conformance10 $(BIN)/bartleby

interop: build ## every client that test/interop has, as released, against a node
	$(GO) run ./test/interop -bartleby $(BIN)/bartleby

openapi: build ## Alibaba Cloud's own clients, as released, against ApsaraMQ's API of a node
	scripts/openapi $(BIN)/bartleby

docs: ## the commands of the user's pages, with the programs in Java too
	test/interop/java/setup
	test/interop/spring/setup
	$(GO) test -count=1 ./test/docs -java

clientsuites: build ## the own tests of amqp091-go, Watermill, and RabbitMQ's Go client of AMQP 1.0
	scripts/clientsuites $(BIN)/bartleby

rabbithole: build ## rabbit-hole's own tests, of its versions 2 and 3
	scripts/rabbithole $(BIN)/bartleby

crash: ## kill a node 200 times while messages die, and look where each is
	$(GO) test -count=1 -v -parallel 4 ./test/crash -kills 208

conserve: ## random clients and a ledger, with kills and without: EPISODES of them, or without end (FOR=30m: until then)
	$(GO) test -count=1 -v -timeout 0 ./test/conserve $(if $(EPISODES),-episodes $(EPISODES),-for $(FOR) -again 0) -seed $(SEED)

twodrivers: ## random operations on a classic and a quorum queue: CHECKS lists of each kind; SEED=N repeats them
	$(GO) test -count=1 -v -timeout 0 ./test/twodrivers -rapid.checks $(CHECKS) -rapid.seed $(SEED)

sim: ## SEEDS simulated clusters, each with its own faults, a third of them with quorum queues, and nodes that crash; SEED=N is one of each
	$(GO) test -count=1 -v -timeout 20m ./internal/sim -run TestSimulation -seeds $$(($(SEEDS) - $(SEEDS) / 3)) -seed $(SEED)
	$(GO) test -count=1 -v -timeout 20m ./internal/run/partition -run TestSimulation -seeds $$(($(SEEDS) / 3)) -seed $(SEED)
	$(GO) test -count=1 -v -timeout 20m ./internal/run/partition -run TestLives -seeds $$(($(SEEDS) / 3)) -seed $(SEED)

soak: ## two and a half hours: thousands of kills under load, simulated clusters, then an hour of fuzzing
	$(GO) test -count=1 -v -parallel 4 -timeout 60m ./test/crash -kills 208 -for 30m
	$(GO) test -count=1 -v -timeout 0 ./internal/sim -run TestSimulation -from $$(date +%s)000 -for $(SOAK)
	$(GO) test -count=1 -v -timeout 0 ./internal/run/partition -run TestSimulation -from $$(date +%s)000 -for $(SOAK)
	scripts/fuzz 1m

hostile: ## clients that break the protocol, flood, or say nothing
	$(GO) test -count=1 -v ./test/hostile

scale: ## what very much in a node takes: 100 million messages, deadlines by the million, restarts, disk given back
	$(GO) test -count=1 -v -timeout 60m ./test/scale -scale

stall: ## what is large to one queue, and what a bystander sees of it
	$(GO) test -count=1 -v -timeout 20m ./test/stall -stall

fuzz: ## every fuzz target for FUZZTIME, as 5s or 5000x
	scripts/fuzz $(FUZZTIME)

generate: ## write the generated files anew
	$(GO) generate ./...

deb: build $(BIN)/nfpm ## the Debian package, in bin/deb/
	rm -rf $(BIN)/deb && scripts/deb $$($(GO) env GOARCH) $(VERSION)

debtest: deb ## install, use, remove and purge the Debian package in a throw-away root
	scripts/debtest $(BIN)/deb/bartleby_*.deb

release: build $(BIN)/nfpm $(BIN)/goreleaser $(BIN)/cyclonedx-gomod ## all files of a release, in bin/release/; nothing is published
	rm -rf $(BIN)/deb && for arch in amd64 arm64; do scripts/deb $$arch $(VERSION) || exit 1; done
	PATH=$(BIN):$$PATH VERSION=$(VERSION) SNAPSHOT=$(VERSION) $(BIN)/goreleaser release --clean $$(git describe --exact-match --match 'v*' >/dev/null 2>&1 || echo --snapshot)
	mv $(BIN)/deb/*.deb $(BIN)/release/
	cd $(BIN)/release && sha256sum --check --quiet SHA256SUMS

clean: ## remove what was built
	rm -rf $(BIN)

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

$(BIN)/golangci-lint: | $(BIN)/.golangci-lint-$(GOLANGCI_LINT)
$(BIN)/.golangci-lint-$(GOLANGCI_LINT):
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	@touch $@

$(BIN)/govulncheck: | $(BIN)/.govulncheck-$(GOVULNCHECK)
$(BIN)/.govulncheck-$(GOVULNCHECK):
	GOBIN=$(BIN) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	@touch $@

$(BIN)/nfpm: | $(BIN)/.nfpm-$(NFPM)
$(BIN)/.nfpm-$(NFPM):
	GOBIN=$(BIN) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM)
	@touch $@

$(BIN)/goreleaser: | $(BIN)/.goreleaser-$(GORELEASER)
$(BIN)/.goreleaser-$(GORELEASER):
	GOBIN=$(BIN) $(GO) install github.com/goreleaser/goreleaser/v2@$(GORELEASER)
	@touch $@

$(BIN)/cyclonedx-gomod: | $(BIN)/.cyclonedx-gomod-$(CYCLONEDX)
$(BIN)/.cyclonedx-gomod-$(CYCLONEDX):
	GOBIN=$(BIN) $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX)
	@touch $@
