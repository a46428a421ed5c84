package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// All obstacles of a file are named at once.
func TestDefinitionsCheck(t *testing.T) {
	run := func(text string) (string, error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "d.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		c := command("bartleby")
		c.SetArgs([]string{"definitions", "check", file})
		c.SetOut(&out)
		c.SetErr(&out)
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run(`{"vhosts":[{"name":"v"}],"queues":[{"name":"s","vhost":"v","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"stream"}},
		{"name":"ttl","vhost":"v","durable":true,"auto_delete":false,"arguments":{"x-message-ttl":-1}}],
		"policies":[{"vhost":"v","name":"ahead","pattern":"^(?!amq\\.).*","apply-to":"all","definition":{"max-length":10}}]}`)
	for _, want := range []string{"queue 's' in vhost 'v': ", "(--skip-unsupported leaves it out)", "queue 'ttl' in vhost 'v': "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "2 objects cannot be imported, 1 of them") || strings.Contains(out, "ahead") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run(`{"vhosts":[{"name":"v"}]}`); err != nil || !strings.Contains(out, "all of it can be imported") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run(`{"queus":[{"name":"q","vhost":"v"}]}`); err != nil || !strings.Contains(out, `warning: the section "queus" is none of definitions`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run("{\"vhosts\":[\n{\"name\":\"v\",}]}"); err == nil || !strings.Contains(err.Error(), "failed_to_parse_json: line 2, column 13: ") {
		t.Errorf("%v: %s", err, out)
	}
}
