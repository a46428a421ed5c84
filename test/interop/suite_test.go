//go:build unix

package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// writeClient makes a client of shell scripts.
func writeClient(t *testing.T, root, name, stories, setup, run string) {
	t.Helper()
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"stories": stories, "setup": "#!/bin/sh\n" + setup, "run": "#!/bin/sh\n" + run} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// api stands in for a management API and keeps what it was asked.
type api struct {
	mu    sync.Mutex
	asked []string
}

func (a *api) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, r.Method+" "+r.URL.Path)
}

// playSuite plays the clients in root against a broker that is only an API.
func playSuite(t *testing.T, root string, kind string, o options) (results map[cell]result, said string, asked []string) {
	t.Helper()
	asks := &api{}
	server := httptest.NewServer(asks)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{
		kind: kind, http: at, amqp: &url.URL{Scheme: "amqp", User: url.UserPassword("guest", "guest"), Host: at.Host},
	}
	clients, err := findClients(root)
	if err != nil {
		t.Fatal(err)
	}
	if o.limit == 0 {
		o.limit = time.Minute
	}
	var out strings.Builder
	s := &suite{out: &out, options: o, broker: b, clients: clients, results: map[cell]result{}}
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.results, out.String(), asks.asked
}

func TestACellPassesWhenItsProgramExitsWithNothing(t *testing.T) {
	root := t.TempDir()
	writeClient(t, root, "good", "confirms", "exit 0", `[ "$AMQP_VHOST" = interop-good-confirms ] && [ "$1" = confirms ]`)
	writeClient(t, root, "bad", "confirms", "exit 0", "echo the count is 2, not 3; exit 1")
	results, said, asked := playSuite(t, root, bartleby, options{parallel: 2})
	want := map[cell]result{{"good", "confirms"}: passed, {"bad", "confirms"}: failed}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Error(diff, said)
	}
	if !strings.Contains(said, "    the count is 2, not 3\n") {
		t.Errorf("what the failed cell said is not told:\n%s", said)
	}
	for _, want := range []string{"PUT /api/vhosts/interop-good-confirms", "PUT /api/permissions/interop-good-confirms/guest"} {
		if !slices.Contains(asked, want) {
			t.Errorf("the API was not asked %s, but %q", want, asked)
		}
	}
	if last := asked[len(asked)-1]; !strings.HasPrefix(last, "DELETE /api/vhosts/") {
		t.Errorf("the last word to the API is %s", last)
	}
}

func TestAFailedSetupFailsItsCells(t *testing.T) {
	root := t.TempDir()
	writeClient(t, root, "absent", "confirms\nreject", "echo there is no ruby; exit 3", "exit 0")
	writeClient(t, root, "broken", "confirms", "exit 1", "exit 0")
	results, said, _ := playSuite(t, root, bartleby, options{parallel: 1})
	want := map[cell]result{{"absent", "confirms"}: absent, {"absent", "reject"}: absent, {"broken", "confirms"}: failed}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(said, "there is no ruby") {
		t.Errorf("what is missing is not told:\n%s", said)
	}
}

func TestWhatOnlyBartlebyHasIsNotPlayedElsewhere(t *testing.T) {
	root := t.TempDir()
	writeClient(t, root, "pika", "replay bartleby", "exit 0", "exit 0")
	for kind, want := range map[string]result{bartleby: passed, rabbitmq: ours} {
		results, _, _ := playSuite(t, root, kind, options{parallel: 1})
		if got := results[cell{"pika", "replay"}]; got != want {
			t.Errorf("against %s it is %q, want %q", kind, got, want)
		}
	}
}

func TestACellThatTakesTooLongIsKilledWithAllItStarted(t *testing.T) {
	root := t.TempDir()
	writeClient(t, root, "slow", "confirms", "exit 0", "sleep 600 & echo $! >child; wait")
	results, said, _ := playSuite(t, root, bartleby, options{parallel: 1, limit: 200 * time.Millisecond})
	if results[cell{"slow", "confirms"}] != failed || !strings.Contains(said, "longer than 200ms") {
		t.Errorf("%v\n%s", results, said)
	}
	child, err := os.ReadFile(filepath.Join(root, "slow", "child"))
	if err != nil {
		t.Fatal(err)
	}
	ended := func() bool { // gone, or a zombie that nobody has waited for
		status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
		return err != nil || strings.Contains(string(status), ") Z ")
	}
	for deadline := time.Now().Add(10 * time.Second); !ended(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what the story had started still runs")
		}
	}
}

func TestOnlyAStoryThatIsAloneRestartsTheBroker(t *testing.T) {
	server := httptest.NewServer(&api{}) // takes connections for both protocols
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "restarted")
	r, err := newRestarter(t.Context(), &broker{amqp: at, http: at, restartCommand: []string{"touch", mark}}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	ask := "http://" + r.address + "/"
	if err := requestRestart(ask); err == nil || !strings.Contains(err.Error(), "alone") {
		t.Errorf("asked beside others: %v", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the broker was restarted all the same")
	}
	r.allowed.Store(true)
	if err := requestRestart(ask); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the broker was not restarted: %v", err)
	}
}

func TestWhatRestartsTheBrokerIsPlayedLastAndAlone(t *testing.T) {
	root := t.TempDir()
	run := `echo "$1 begins" >>../log; echo "$1 ends" >>../log`
	writeClient(t, root, "a", "kill alone\nconfirms", "exit 0", run)
	writeClient(t, root, "b", "crash alone\nreject\nretry", "exit 0", run)
	results, said, _ := playSuite(t, root, bartleby, options{parallel: 3})
	if n := count(results); n[passed] != 5 {
		t.Fatalf("%v\n%s", results, said)
	}
	log, err := os.ReadFile(filepath.Join(root, "log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	if diff := cmp.Diff([]string{"kill begins", "kill ends", "crash begins", "crash ends"}, lines[len(lines)-4:]); diff != "" {
		t.Error(diff)
	}
}
