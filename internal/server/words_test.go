package server

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"bartleby.mq/internal/run/definitions"
)

// A node says at its start that the last one on the directory was killed; a command that looked at the directory meanwhile
// does not hide it, and an orderly stop leaves nothing to say.
func TestAStartAfterAKillSaysSo(t *testing.T) {
	dir := t.TempDir()
	start := func() string {
		t.Helper()
		var log bytes.Buffer
		o, _ := options(dir)
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s, err := Start(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	for range 2 {
		if log := start(); strings.Contains(log, "was not stopped in order") {
			t.Fatalf("after a stop: %s", log)
		}
	}
	if killed := markUp(dir); killed { // as a node does that is killed then
		t.Error("a node that was stopped counts as killed")
	}
	release, err := LockDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if log := start(); !strings.Contains(log, "was not stopped in order") {
		t.Errorf("after a kill: %s", log)
	}
	if log := start(); strings.Contains(log, "was not stopped in order") {
		t.Errorf("a start later: %s", log)
	}
}

// Definitions that are not JSON are refused with the place, and a default_user that users make needless is called so.
func TestWordsAboutDefinitions(t *testing.T) {
	for text, want := range map[string]string{
		"{\n \"users\": [\n  {]\n}": ": line 3, column 4: invalid character ']'",
		"{":                         ": line 1, column 1: unexpected end of JSON input",
		"{}":                        "",
	} {
		if got := definitions.SyntaxError([]byte(text)); got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	var log bytes.Buffer
	o, _ := options(t.TempDir())
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.Config.FirstStart.User = "boss"
	o.Definitions = []byte(`{"users":[{"name":"u","password":"p","tags":["administrator"]}]}`)
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "default_user has no effect") || !strings.Contains(log.String(), "user=boss") {
		t.Errorf("%s", log.String())
	}
}

// A browser at / sees what this is and where its parts are, without a login; nothing else changes there.
func TestFrontPage(t *testing.T) {
	o, _ := options(t.TempDir())
	s := mustStart(t, o)
	defer mustStop(t, s)
	base := "http://" + s.Addresses().HTTP.String()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(base + "/")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	if !strings.Contains(string(text), "<title>Bartleby") { // the console, or the page that says how to get it
		t.Errorf("the page is %s", text)
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") {
		t.Errorf("its policy is %q", csp)
	}
	for path, want := range map[string]int{"/nothing": http.StatusNotFound, "/api/overview": http.StatusUnauthorized} {
		resp, err := client.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}
