package ctl_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The audit says who did what and why, by user, kind and time, in pages.
func TestAuditIsListed(t *testing.T) {
	officeNode(t)
	ours := func(args ...string) string { return tool(t, append([]string{"bartleby"}, args...)...) }
	if got := ours("dlq", "audit"); got != "exit 1\n" {
		t.Error(got)
	}
	ours("dlq", "replay", "orders.dead", "--because", "the shop\x1b[31m is back", "--yes", "--watch")
	setRules(t, `{"threshold": 7}`)
	tool(t, "rabbitmqadmin", "declare", "vhost", "name=other")
	ours("rules", "set", "-p", "other", writeFile(t, "document.json", `{"threshold": 8}`))
	dates := regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+`)
	if got := dates.ReplaceAllString(ours("dlq", "audit", "-p", "/"), "DATE"); !strings.HasPrefix(got, "What was done to dead letters, the latest first ...\n") ||
		!regexp.MustCompile(`(?m)^DATE +guest +rules\.set +`).MatchString(got) || !regexp.MustCompile(`(?m)^DATE +guest +job\.made +1 +3 +the shop·\[31m is back`).MatchString(got) || strings.Contains(got, "VHOST") {
		t.Error(got)
	}
	for _, c := range []struct{ args, has, hasNot string }{
		{"--what rules.set", "other", "job."}, {"--what job*", "job.made", "rules.set"}, {"--who guest -p other", "rules.set", "job.made"},
		{"--who nobody", "exit 1", "rules"}, {"--since 1m", "job.made", "exit"}, {"--since 2999-01-01T00:00:00Z", "exit 1", "job"}, {"--until 1h", "exit 1", "job"},
		{"--until 2999-01-01T00:00:00Z --limit 1", "There are more: --limit 0", "job.made"}, {"--limit 0", "job.made", "more"}, {"--since soon", "exit 64", "job"}, {"--limit -1", "exit 64", "job"},
		{"--reveal", "needs the tag reveal", "job"}, {"--user nobody --password wrong", "exit 77", "job"},
	} {
		if got := ours(append([]string{"dlq", "audit"}, strings.Fields(c.args)...)...); !strings.Contains(got, c.has) || strings.Contains(got, c.hasNot) {
			t.Errorf("%s\n%s", c.args, got)
		}
	}
	lines := strings.Split(strings.TrimSpace(ours("dlq", "audit", "--json", "--limit", "2")), "\n")
	var a struct {
		Time int64 `json:"time_ms"`
		What string
	}
	if err := json.Unmarshal([]byte(lines[0]), &a); err != nil || len(lines) != 2 || a.What != "rules.set" || time.Since(time.UnixMilli(a.Time)).Abs() > time.Hour {
		t.Errorf("%v: %q", err, lines)
	}
}

// Masks are shown, set by options or from a file, and cleared.
func TestMasksAreSet(t *testing.T) {
	officeNode(t)
	ours := func(args ...string) string { return tool(t, append([]string{"bartleby", "dlq", "masks"}, args...)...) }
	all := func(want string) {
		t.Helper()
		if got := strings.TrimSpace(ours("show", "--json")); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := ours(); got != "Nothing of dead letters of virtual host '/' is hidden.\n" {
		t.Error(got)
	}
	if got := ours("set", "--header", "tenant", "--path", "$..iban", "--path", "$.card.number"); got != "" {
		t.Error(got)
	}
	all(`{"headers":["tenant"],"paths":["$..iban","$.card.number"],"patterns":[]}`)
	if got := tool(t, "bartleby", "dlq", "search", "orders.dead", "--where", "header.tenant=t1"); !strings.HasSuffix(got, "exit 77\n") {
		t.Errorf("a search by what is hidden: %s", got)
	}
	ours("set", "--pattern", "[0-9]{16}", "--header", "")
	all(`{"headers":[],"paths":["$..iban","$.card.number"],"patterns":["[0-9]{16}"]}`)
	if got := ours(); got != "Hidden in dead letters of virtual host '/' ...\nKIND     HIDES\npath     $..iban\npath     $.card.number\npattern  [0-9]{16}\n" {
		t.Error(got)
	}
	ours("set", writeFile(t, "document.json", `{"headers": ["authorization"]}`))
	all(`{"headers":["authorization"],"paths":[],"patterns":[]}`)
	for args, want := range map[string]string{
		"set": "exit 64\n", "set --header a file": "exit 64\n", "clear file": "exit 64\n", "show --header a": "exit 64\n", "hide": "exit 64\n", "set /nowhere": "exit 65\n", "set --path card": "exit 65\n",
		"set --pattern (": "exit 65\n", "-p nowhere": "exit 65\n", "clear -p nowhere": "exit 65\n", "--user nobody --password wrong": "exit 77\n",
	} {
		if got := ours(strings.Fields(args)...); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", args, got)
		}
	}
	all(`{"headers":["authorization"],"paths":[],"patterns":[]}`)
	if got := ours("clear"); got != "" {
		t.Error(got)
	}
	all(`{"headers":[],"paths":[],"patterns":[]}`)
}
