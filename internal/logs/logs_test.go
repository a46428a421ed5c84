package logs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/slogtest"

	"bartleby.mq/internal/config"
)

func configured(t *testing.T, text string) config.Log {
	t.Helper()
	c := config.Default()
	if _, err := config.Parse(&c, text); err != nil {
		t.Fatal(err)
	}
	return c.Log
}

// A line passes by the level of its category, then by that of the output.
func TestLevels(t *testing.T) {
	for _, tt := range []struct{ text, category, want string }{
		{"", "", "info warn error"},
		{"log.console.level = debug", "", "debug info warn error"},
		{"log.default.level = debug", "", "debug info warn error"},
		{"log.default.level = debug\nlog.console.level = error", "", "error"},
		{"log.default.level = warning\nlog.console.level = debug", "", "warn error"},
		{"log.connection.level = error", "", "info warn error"},
		{"log.connection.level = error", "connection", "error"},
		{"log.default.level = error", "connection", "error"},
		{"log.default.level = error\nlog.connection.level = debug", "connection", "debug info warn error"},
		{"log.console.level = none", "", ""},
		{"log.console = false", "", ""},
	} {
		var out bytes.Buffer
		l, err := Open(configured(t, tt.text), nil, &out)
		if err != nil {
			t.Fatal(err)
		}
		log := l.Logger(tt.category)
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		log.Error("error")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, message, _ := strings.Cut(strings.TrimSpace(line), "msg=")
			got = append(got, message)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%q, category %q: %s, want %s", tt.text, tt.category, s, tt.want)
		}
	}
}

// A file that was moved away is left, levels and forms change, and loggers that were
// made before follow.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "a.log")
	l, err := Open(configured(t, "log.console = false\nlog.dir = "+dir+"\nlog.file = sub/a.log"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := l.Logger("").With("k", "v").WithGroup("g")
	log.Info("first", "x", 1)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reload(configured(t, "log.console = false\nlog.file.formatter = json\nlog.file.level = debug\nlog.file = "+path)); err != nil {
		t.Fatal(err)
	}
	log.Debug("second", "x", 2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	old, _ := os.ReadFile(path + ".1")
	now, _ := os.ReadFile(path)
	if !strings.Contains(string(old), "msg=first k=v g.x=1") || strings.Contains(string(old), "second") {
		t.Errorf("the old file has %s", old)
	}
	if !strings.Contains(string(now), `"msg":"second","k":"v","g":{"x":2}`) {
		t.Errorf("the new file has %s", now)
	}
	if err := l.Reload(configured(t, "log.file = /proc/no/such")); err == nil {
		t.Error("a file that there cannot be was opened")
	}
}

// Administrative actions have a file of their own, or are lines as others.
func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	var out bytes.Buffer
	l, err := Open(configured(t, "log.audit.file = "+path), nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	l.Audit().Info("done", "user", "ada")
	if err := l.Reload(configured(t, "")); err != nil {
		t.Fatal(err)
	}
	l.Audit().Info("done", "user", "bob")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); !strings.Contains(string(text), `"user":"ada"`) || strings.Contains(string(text), "bob") {
		t.Errorf("the audit log has %s", text)
	}
	if strings.Contains(out.String(), "ada") || !strings.Contains(out.String(), "user=bob") {
		t.Errorf("the log has %s", &out)
	}
}

func TestHandlerIsAHandler(t *testing.T) {
	var out bytes.Buffer
	l, err := Open(configured(t, "log.console.formatter = json"), nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	err = slogtest.TestHandler(l.Logger("").Handler(), func() (list []map[string]any) {
		for line := range strings.Lines(out.String()) {
			list = append(list, decode(t, line))
		}
		return list
	})
	if err != nil {
		t.Error(err)
	}
}

func decode(t *testing.T, line string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
