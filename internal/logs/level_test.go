package logs

import (
	"bytes"
	"strings"
	"testing"
)

// A level that was set holds for every output and category, through a Reload that only
// opens files anew, until the configuration has another one.
func TestSetLevel(t *testing.T) {
	var out bytes.Buffer
	const text = "log.console.level = error\nlog.connection.level = warning"
	l, err := Open(configured(t, text), nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	log, connection := l.Logger(""), l.Logger("connection")
	look := func(when, level, want string) {
		t.Helper()
		out.Reset()
		log.Debug("debug")
		connection.Info("info")
		log.Error("error")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, message, _ := strings.Cut(strings.TrimSpace(line), "msg=")
			got = append(got, message)
		}
		if s := strings.Join(got, " "); s != want || l.Level() != level {
			t.Errorf("%s: level %s logs %q, want level %s and %q", when, l.Level(), s, level, want)
		}
	}
	set := func(name string) {
		t.Helper()
		if err := l.SetLevel(name); err != nil {
			t.Error(err)
		}
	}
	look("at first", "error", "error")
	set("debug")
	look("after debug", "debug", "debug info error")
	if err := l.Reload(configured(t, text)); err != nil {
		t.Fatal(err)
	}
	look("after a reload of the same", "debug", "debug info error")
	set("none")
	look("after none", "none", "")
	if err := l.SetLevel("nonsense"); err == nil {
		t.Error("a level that there is not is taken")
	}
	if err := l.Reload(configured(t, "log.console.level = info")); err != nil {
		t.Fatal(err)
	}
	look("after a reload of another", "info", "info error")
}
