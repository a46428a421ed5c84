package ctl_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/run/office"
)

// A rule goes from a file to the letters, and back into a file.
func TestRules(t *testing.T) {
	officeNode(t)
	ours := func(args string) string { return tool(t, append([]string{"bartleby"}, strings.Fields(args)...)...) }
	file := filepath.Join(t.TempDir(), "rule.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := ours("rules ls"); got != "Virtual host '/' has no rules.\n" {
		t.Errorf("%q", got)
	}
	write(`{"name": "orders", "queues": "^orders", "match": {"where": "header.tenant=t2"}, "action": "discard", "after_ms": 1}`)
	if got := ours("rules try " + file); got != "The rule would take 1 of 3 messages, 1 of them at once.\n  1  in queue orders.dead\n" {
		t.Errorf("%q", got)
	}
	ours("rules set " + file)
	ours("rules on orders")
	for end := time.Now().Add(10 * time.Second); !strings.Contains(ours("rules show orders"), `"acted":1`); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not acted in 10 s: " + ours("rules ls"))
		}
	}
	if got := ours("rules ls"); !strings.Contains(got, "discard after 1ms") || !strings.Contains(got, "queues ~ ^orders, where header.tenant=t2") {
		t.Error(got)
	}
	if got := ours("dlq jobs"); !strings.Contains(got, "1 moved by rule 'orders'") {
		t.Error(got)
	}
	write(ours("rules ls --json"))
	ours("rules rm orders")
	if got := ours("rules set " + file); !strings.Contains(got, "were changed since you read them") || !strings.Contains(got, "--force") || !strings.HasSuffix(got, "exit 65\n") {
		t.Error(got)
	}
	if got := ours("rules ls"); got != "Virtual host '/' has no rules.\n" {
		t.Errorf("what was changed meanwhile is back: %s", got)
	}
	if got := ours("rules set --force " + file); got != "" {
		t.Error(got)
	}
	write(ours("rules ls --json"))
	if got := ours("rules set " + file); got != "" {
		t.Error(got)
	}
	ours("rules off orders")
	if got := ours("rules ls"); !strings.Contains(got, "off") {
		t.Error(got)
	}
	write(`{"name": "again", "action": "retry", "after_ms": 3600000, "parked": true}`)
	ours("rules set " + file)
	if got := ours("rules ls"); !strings.Contains(got, "retry after 1h0m0s, parked too") {
		t.Error(got)
	}
	write(`{"action": "burn", "name": "x"}`)
	for args, says := range map[string]string{
		"rules set " + file: "retry, send, discard, hold or webhook", "rules try nothing": "neither a file nor a rule", "rules on nothing": "no rule 'nothing'",
		"rules rm nothing": "no rule 'nothing'", "rules lst": "Did you mean 'rules ls'?", "rules set /nowhere": "no such file",
	} {
		if text := ours(args); !strings.Contains(text, "exit ") || !strings.Contains(text, says) {
			t.Errorf("%s: %s", args, text)
		}
	}
}

// A webhook is made with a secret from a file, tried, listed, and removed.
func TestWebhooks(t *testing.T) {
	officeNode(t, func(o *office.Options) { o.WebhooksLocal = true })
	ours := func(args string) string { return tool(t, append([]string{"bartleby"}, strings.Fields(args)...)...) }
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ours("webhooks set desk --url " + server.URL + " --events leter.# --secret-file " + secret); !strings.Contains(got, "no event is called 'leter.#'") || !strings.Contains(got, "letter.threshold") {
		t.Error(got)
	}
	ours("webhooks set desk --url " + server.URL + " --events job.*,letter.# --secret-file " + secret)
	if got := ours("webhooks test desk"); !strings.HasPrefix(got, "Delivered: the answer was 200") {
		t.Errorf("%q", got)
	}
	ours("webhooks off desk")
	if got := ours("webhooks ls"); !strings.Contains(got, "off") || !strings.Contains(got, "job.* letter.#") || strings.Contains(got+ours("webhooks show desk"), "0123456789abcdef") {
		t.Error(got)
	}
	server.Close()
	if text := ours("webhooks test desk"); !strings.Contains(text, "exit 75") || !strings.Contains(text, "refused") {
		t.Error(text)
	}
	ours("webhooks rm desk")
	if got := ours("webhooks ls"); got != "There are no webhooks.\n" {
		t.Errorf("%q", got)
	}
}
