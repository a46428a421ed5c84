package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/api"
	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/ctl"
)

var update = flag.Bool("update", false, "write testdata anew; read the difference")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "token of the node"

// node is a broker in memory behind its API, on a real socket.
func node(t *testing.T, change ...func(*api.Options)) (url string, b *broker.Broker) {
	t.Helper()
	for _, name := range []string{"BARTLEBY_URL", "BARTLEBY_USER", "BARTLEBY_PASSWORD", "BARTLEBY_DATA_DIR"} {
		t.Setenv(name, "")
	}
	t.Chdir(t.TempDir())
	b, err := broker.Open(broker.Options{Dir: "data", FS: vfs.NewMem(), NodeName: "rabbit@test"})
	if err != nil {
		t.Fatal(err)
	}
	err = b.CreateDefault(broker.Default{
		VHost: "/", User: "guest", Password: "guest", Tags: []string{"administrator"}, Configure: ".*", Write: ".*", Read: ".*",
	})
	if err != nil {
		t.Fatal(err)
	}
	o := api.Options{Broker: b, ClusterName: "peer", Token: token}
	for _, f := range change {
		f(&o)
	}
	s := httptest.NewServer(api.New(o))
	t.Cleanup(func() {
		s.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.URL, b
}

// run runs a command line as rabbitmqctl.
func run(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	root := ctl.Command("rabbitmqctl")
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code = ctl.Execute(context.Background(), root)
	return code, stdout.String(), stderr.String()
}

// definitions are in the file DEFINITIONS where transcripts run.
const definitions = `{
	"queues": [
		{"vhost": "/", "name": "qq", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "quorum"}},
		{"vhost": "/", "name": "pd", "durable": true, "auto_delete": false,
			"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "pdl", "x-message-ttl": 1}}
	],
	"exchanges": [{"vhost": "/", "name": "x", "type": "headers", "durable": true, "auto_delete": false, "arguments": {"alternate-exchange": "ae"}}],
	"bindings": [{"vhost": "/", "source": "x", "destination": "qq", "destination_type": "queue", "routing_key": "", "arguments": {"x-match": "any", "n": 1}}],
	"policies": [{"vhost": "/", "name": "DLX", "pattern": "^q", "apply-to": "queues", "definition": {"max-length": 5}, "priority": 0}]
}`

// TestTranscripts runs the command lines of testdata/*.txt, those after "$ ", and
// compares what they print: standard output indented by two blanks, standard error
// by "  !", and the exit code. "# " begins a comment. The texts are those of
// RabbitMQ 4.3.6's rabbitmqctl except where a comment says otherwise.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for i, file := range files {
		if files[i], err = filepath.Abs(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			url, _ := node(t)
			t.Setenv("BARTLEBY_URL", url)
			if err := os.WriteFile("DEFINITIONS", []byte(definitions), 0o644); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for line := range strings.Lines(string(want)) {
				line = strings.TrimSuffix(line, "\n")
				if strings.HasPrefix(line, "#") || line == "" {
					got.WriteString(line + "\n")
				}
				command, ok := strings.CutPrefix(line, "$ ")
				if !ok {
					continue
				}
				code, out, errs := run(split(t, command)...)
				got.WriteString(line + "\n")
				indent(&got, "  ", strings.ReplaceAll(out, url, "URL"))
				indent(&got, "  !", strings.ReplaceAll(errs, url, "URL"))
				fmt.Fprintf(&got, "  exit %d\n", code)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
		})
	}
}

func indent(b *strings.Builder, with, text string) {
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(with+line, "\n") + "\n")
	}
}

// split cuts a command line as a shell does, knowing single quotes only.
func split(t *testing.T, line string) (args []string) {
	t.Helper()
	quoted, begun := false, false
	var word strings.Builder
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			if begun {
				args = append(args, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quoted {
		t.Fatalf("%s: a quote is open", line)
	}
	if begun {
		args = append(args, word.String())
	}
	return args
}

// A data directory lets its owner in; its token goes to its own address only.
func TestDataDirectory(t *testing.T) {
	url, b := node(t)
	if _, err := b.DeleteUser("guest"); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run("--url", url, "list_vhosts"); code != 77 {
		t.Errorf("without guest: exit %d, %s; want 77", code, errs)
	}
	access, err := json.Marshal(map[string]string{"url": url, "token": token})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ctl.json"), access, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := run("--data-dir", dir, "-q", "list_vhosts"); code != 0 || out != "name\n/\n" {
		t.Errorf("--data-dir: exit %d, %q, %s", code, out, errs)
	}
	t.Setenv("BARTLEBY_DATA_DIR", dir)
	if code, _, errs := run("add_vhost", "v"); code != 0 {
		t.Errorf("$BARTLEBY_DATA_DIR: exit %d, %s", code, errs)
	}
	if code, _, _ := run("--user", "guest", "--password", "guest", "--url", url, "list_vhosts"); code != 77 {
		t.Errorf("a given user is used: exit %d, want 77", code)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), token) {
			t.Error("the token went to another address")
		}
	}))
	defer other.Close()
	_, _, _ = run("--url", other.URL, "list_vhosts")
	if code, _, errs := run("--data-dir", t.TempDir(), "list_vhosts"); code != 69 {
		t.Errorf("a data directory without a node: exit %d, %s; want 69", code, errs)
	}
}

// Where no node answers, waiting ends when time is up, and other verbs at once.
func TestNoNode(t *testing.T) {
	_, _ = node(t)
	const nowhere = "http://127.0.0.1:1"
	if code, _, errs := run("--url", nowhere, "list_queues"); code != 69 || !strings.Contains(errs, nowhere) {
		t.Errorf("list_queues: exit %d, %s; want 69", code, errs)
	}
	if code, _, errs := run("--url", nowhere, "await_startup", "-t", "0.2"); code != 75 {
		t.Errorf("await_startup: exit %d, %s; want 75", code, errs)
	}
}

// wait returns once the PID file is there and the node answers.
func TestWait(t *testing.T) {
	url, _ := node(t)
	file := filepath.Join(t.TempDir(), "pid")
	timer := time.AfterFunc(50*time.Millisecond, func() { _ = os.WriteFile(file, []byte("4711\n"), 0o644) })
	defer timer.Stop()
	code, out, errs := run("--url", url, "wait", file, "--timeout", "10")
	if code != 0 || !strings.Contains(out, "pid is 4711") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, _, _ := run("--url", url, "wait"); code != 64 {
		t.Errorf("without a file: exit %d, want 64", code)
	}
}

// stop returns when the node is gone.
func TestStop(t *testing.T) {
	var s *httptest.Server
	url, b := node(t)
	s = httptest.NewServer(api.New(api.Options{Broker: b, Stop: func() { s.Close() }}))
	defer s.Close()
	if code, _, errs := run("--url", s.URL, "stop"); code != 0 {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, _, errs := run("--url", url, "stop"); code != 69 {
		t.Errorf("a node that cannot be stopped: exit %d, %s; want 69", code, errs)
	}
}

// Whether a name has a slash, a plus or letters of any script: it arrives.
func TestNames(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	for _, name := range []string{"a/b", "a+b", "a b", "ünï", "100%", "?x=y#z"} {
		if code, _, errs := run("add_vhost", name); code != 0 {
			t.Fatalf("%s: %s", name, errs)
		}
		if code, _, errs := run("set_policy", "-p", name, name, ".*", `{"max-length":3}`); code != 0 {
			t.Errorf("%s: %s", name, errs)
		}
		if _, out, errs := run("-s", "list_policies", "-p", name); !strings.HasPrefix(out, name+"\t"+name+"\t.*\tall\t") {
			t.Errorf("%s: %s%s", name, out, errs)
		}
		if code, _, errs := run("delete_vhost", name); code != 0 {
			t.Errorf("%s: %s", name, errs)
		}
	}
}

// Definitions leave and come back.
func TestDefinitions(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	file := filepath.Join(t.TempDir(), "d.json")
	if code, _, errs := run("add_vhost", "v"); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := run("export_definitions", file); code != 0 {
		t.Fatal(errs)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file holds password hashes and has mode %v, %v", info.Mode(), err)
	}
	if code, _, errs := run("delete_vhost", "v"); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := run("import_definitions", file); code != 0 {
		t.Fatal(errs)
	}
	if _, out, errs := run("-s", "list_vhosts"); out != "/\nv\n" {
		t.Errorf("got %q, %s", out, errs)
	}
}
