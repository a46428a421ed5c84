# Bartleby. "make" builds bin/bartleby; "make help" lists the rest.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BIN     := $(CURDIR)/bin

GOLANGCI_LINT := v2.15.0
GOVULNCHECK   := v1.1.4
FUZZTIME      ?= 5s

# Packages whose state is shared by goroutines, or decides what becomes of messages.
RACE := ./internal/amqp091 ./internal/api ./internal/auth ./internal/bodies ./internal/broker ./internal/deadletter ./internal/journal \
	./internal/listen ./internal/message ./internal/partition ./internal/queue ./internal/routing ./internal/server \
	./internal/session091 ./internal/topology

.PHONY: build run test race lint vuln bench brokerbench conformance conformance-more crash soak hostile stall fuzz generate clean help

build: ## build bin/bartleby
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o $(BIN)/bartleby ./cmd/bartleby
	ln -sf bartleby $(BIN)/rabbitmqctl

run: build ## run a node with its data in ./data
	$(BIN)/bartleby server

test: ## all tests that need nothing but Go
	$(GO) test ./...
	cd test/conformance && $(GO) vet .
	cd test/brokerbench && $(GO) vet .

race: ## the core packages under the race detector
	$(GO) test -race $(RACE)

lint: $(BIN)/golangci-lint ## golangci-lint over the whole tree
	$(BIN)/golangci-lint run ./...

vuln: $(BIN)/govulncheck ## known vulnerabilities in what is called
	$(BIN)/govulncheck ./...

bench: ## the benchmarks of publish, route, deliver, ack and append
	$(GO) test -run '^$$' -bench . -benchmem ./internal/...

conformance: build ## play RabbitMQ's transcripts, in strict and in default mode
	scripts/conformance $(BIN)/bartleby

conformance-more: build ## play what the public scenarios do not look at, in strict mode
	scripts/conformance $(BIN)/bartleby more

crash: ## kill a node 200 times while messages die, and look where each is
	$(GO) test -count=1 -v -parallel 4 ./test/crash -kills 208

soak: ## an hour and a half: thousands of kills under load, then an hour of fuzzing
	$(GO) test -count=1 -v -parallel 4 -timeout 60m ./test/crash -kills 208 -for 30m
	scripts/fuzz 4m

hostile: ## clients that break the protocol, flood, or say nothing
	$(GO) test -count=1 -v ./test/hostile

stall: ## what is large to one queue, and what a bystander sees of it
	$(GO) test -count=1 -v -timeout 20m ./test/stall -stall

fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz $(FUZZTIME)

generate: ## write the generated files anew
	$(GO) generate ./...

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
