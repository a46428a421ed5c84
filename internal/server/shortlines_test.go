package server

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// Whatever a stranger sends, the log has short lines; what is refused for want of a password is
// no administrative action.
func TestStrangersWriteShortLinesOnly(t *testing.T) {
	o, log := options(t.TempDir())
	audit := new(logged)
	o.Audit = slog.New(slog.NewTextHandler(audit, nil))
	s := mustStart(t, o)
	defer mustStop(t, s)
	long := strings.Repeat("x", 20_000)
	before := len(log.String())
	for _, q := range []struct {
		method, path, user, origin string
		want                       int
	}{
		{"PUT", "/api/queues/%2F/" + long, "", "", http.StatusUnauthorized},
		{"PUT", "/api/queues/%2F/q", long, "", http.StatusUnauthorized},
		{"PUT", "/api/queues/%2F/" + long, "guest", "https://" + long, http.StatusForbidden},
		{"PUT", "/api/queues/%2F/" + long, "guest", "", http.StatusBadRequest},
	} {
		r, err := http.NewRequestWithContext(t.Context(), q.method, "http://"+s.Addresses().HTTP.String()+q.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if q.user != "" {
			r.SetBasicAuth(q.user, "guest")
		}
		if q.origin != "" {
			r.Header.Set("Origin", q.origin)
		}
		r.Close = true
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, a.Body)
		_ = a.Body.Close()
		if a.StatusCode != q.want {
			t.Errorf("%s %.40s as %.10q: %d, want %d", q.method, q.path, q.user, a.StatusCode, q.want)
		}
	}
	if n := len(log.String()) - before; n > 5_000 {
		t.Errorf("the log has %d bytes of four requests", n)
	}
	lines := strings.Split(strings.TrimSpace(audit.String()), "\n")
	if len(lines) != 1 || !strings.Contains(lines[0], "user=guest") || len(lines[0]) > 5_000 {
		t.Errorf("the audit log has %d lines, %d bytes; want the one of guest", len(lines), len(audit.String()))
	}
}

func TestLongValuesAreCutWhereverTheyAre(t *testing.T) {
	long := strings.Repeat("ä", maxLogged)
	type name string
	log := new(logged)
	l := short(slog.New(slog.NewTextHandler(log, nil)))
	l.With("with", long).WithGroup("group").Info(long, "text", long, "error", errors.New(long), "name", name(long), slog.Group("inner", "list", []string{long}), "stack", "whole "+long+" end")
	line := log.String()
	if n := strings.Count(line, "… ("); n != 6 || !strings.Contains(line, "ä end") {
		t.Errorf("%d values are cut in %.3000s", n, line)
	}
	if strings.Contains(line, "\ufffd") || strings.Contains(line, `\x`) {
		t.Error("a character is cut in two")
	}
	log.text.Reset()
	l.Info("short", "n", 1, "text", "x", "error", io.EOF)
	if got := log.String(); !strings.HasSuffix(got, "msg=short n=1 text=x error=EOF\n") {
		t.Errorf("short values became %q", got)
	}
}
