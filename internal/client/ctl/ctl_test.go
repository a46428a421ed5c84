package ctl_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"bartleby.mq/internal/core/declare"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/client/ctl"
	"bartleby.mq/internal/controlsocket"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/wire/amqp091"
)

var update = flag.Bool("update", false, "write testdata anew; read the difference")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	o := api.Options{Broker: b, ClusterName: "peer"}
	setLive(&o)
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

// setLive has a node with what can be set while it runs, and a memory of 10 GB.
func setLive(o *api.Options) {
	const memory = 10e9
	level, limits := "info", api.NodeLimits{MemoryLimit: 0.6 * memory, DiskFreeLimit: 50e6}
	set := func(limit *int64) func(float64, int64) error {
		return func(fraction float64, bytes int64) error {
			*limit = int64(fraction*memory) + bytes
			return nil
		}
	}
	o.Limits = func() api.NodeLimits { return limits }
	o.SetMemoryWatermark, o.SetDiskFreeLimit = set(&limits.MemoryLimit), set(&limits.DiskFreeLimit)
	o.LogLevel = func() string { return level }
	o.SetLogLevel = func(next string) error { level = next; return nil }
	o.SetAlarm = o.Broker.SetAlarm
}

// run runs a command line as rabbitmqctl.
func run(args ...string) (code int, out, errs string) { return runAs("rabbitmqctl", args...) }

// runAs is run for a program called by that name.
func runAs(name string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	root := ctl.Command(name)
	root.Version = "4.3.6"
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

// open lets the command line in by a data directory, as a server does.
func open(t *testing.T, b *broker.Broker, dir string, listeners ...api.Listener) {
	t.Helper()
	l, err := controlsocket.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: api.Local(api.New(api.Options{Broker: b, Listeners: func() []api.Listener { return listeners }}))}}
	s.Start()
	t.Cleanup(s.Close)
}

// Who names a user means the node of the data directory too: its address is asked there, whatever the port.
func TestAUserMeansTheNodeOfTheDataDirectory(t *testing.T) {
	url, b := node(t)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(port)
	if err := os.Mkdir("data", 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, b, "data", api.Listener{Protocol: "amqp", Host: host, Port: 1}, api.Listener{Protocol: "http", Host: host, Port: n})
	if code, out, errs := run("--user", "guest", "--password", "guest", "-q", "list_vhosts"); code != 0 || out != "name\n/\n" {
		t.Errorf("exit %d, %q, %s", code, out, errs)
	}
	if code, _, _ := run("--user", "guest", "--password", "wrong", "list_vhosts"); code != 77 {
		t.Errorf("the user's rights are used: exit %d, want 77", code)
	}
}

// A data directory lets its owner in, named by a flag or the environment, or where nodes
// have theirs; who names a user or an address means that one.
func TestDataDirectory(t *testing.T) {
	url, b := node(t)
	if _, err := b.By("").Do(declare.DeleteUser{Name: "guest"}); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run("--url", url, "list_vhosts"); code != 77 {
		t.Errorf("without guest: exit %d, %s; want 77", code, errs)
	}
	dir := t.TempDir()
	open(t, b, dir)
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
	t.Setenv("BARTLEBY_DATA_DIR", "")
	if err := os.Mkdir("data", 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, b, "data")
	if code, out, errs := run("-q", "-s", "list_vhosts"); code != 0 || out != "/\nv\n" {
		t.Errorf("./data: exit %d, %q, %s", code, out, errs)
	}
	empty := t.TempDir()
	if code, _, errs := run("--data-dir", empty, "list_vhosts"); code != 69 || errs != "Error:\nno node runs on data directory "+empty+"\n" {
		t.Errorf("a data directory without a node: exit %d, %s; want 69", code, errs)
	}
}

// Who names a data directory, by the flag or in the environment, means the node on it. If none
// runs there nothing else is asked: not what listens at the default address, and not the node
// that the environment names beside the flag.
func TestANamedDataDirectoryIsNeverAnotherNode(t *testing.T) {
	url, _ := node(t)
	usual := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = usual })
	http.DefaultTransport = transport(func(r *http.Request) (*http.Response, error) {
		t.Errorf("%s %s was asked", r.Method, r.URL)
		return nil, errors.New("nothing is to be asked")
	})
	stopped := t.TempDir()
	for _, tool := range []struct {
		run  func(...string) (int, string, string)
		verb []string
	}{{run, []string{"-q", "list_vhosts"}}, {admin, []string{"declare", "queue", "name=q"}}} {
		for name, call := range map[string]struct {
			environment map[string]string
			args        []string
		}{
			"variable":                      {environment: map[string]string{"BARTLEBY_DATA_DIR": stopped}},
			"flag":                          {args: []string{"--data-dir", stopped}},
			"flag, and variables elsewhere": {map[string]string{"BARTLEBY_URL": url, "BARTLEBY_USER": "guest", "BARTLEBY_PASSWORD": "guest"}, []string{"--data-dir", stopped}},
		} {
			t.Run(name, func(t *testing.T) {
				for variable, value := range call.environment {
					t.Setenv(variable, value)
				}
				code, _, errs := tool.run(append(call.args, tool.verb...)...)
				if code != 69 || errs != "Error:\nno node runs on data directory "+stopped+"\n" {
					t.Errorf("exit %d, %s; want 69, and that no node runs there", code, errs)
				}
			})
		}
	}
	if code, _, errs := run("--data-dir", stopped, "--url", url, "--user", "guest", "list_vhosts"); code != 64 {
		t.Errorf("a directory and an address: exit %d, %s; want 64", code, errs)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Who names a node on another machine does not mean the one that was found here.
func TestANodeElsewhereIsNotTheOneHere(t *testing.T) {
	_, b := node(t)
	if err := os.Mkdir("data", 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, b, "data")
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"rabbit@elsewhere": 69, "rabbit@elsewhere.example": 69, "rabbit@test": 0, "rabbit": 0, "rabbit@localhost": 0, "rabbit@" + here: 0, "rabbit@" + here + ".example": 0,
	} {
		code, _, errs := run("-n", name, "list_queues")
		if code != want || code != 0 && !strings.Contains(errs, "node "+name+" is not the node at data directory data, which is rabbit@test.") {
			t.Errorf("-n %s: exit %d, %s, want %d", name, code, errs, want)
		}
	}
	if code, _, errs := run("--data-dir", "data", "-n", "rabbit@elsewhere", "list_queues"); code != 0 {
		t.Errorf("a data directory that is named: exit %d, %s", code, errs)
	}
}

// await_startup waits for a node that has not begun to make its data directory yet.
func TestAwaitStartupByDataDirectory(t *testing.T) {
	_, b := node(t)
	dir := filepath.Join(t.TempDir(), "data")
	done := make(chan struct{})
	timer := time.AfterFunc(50*time.Millisecond, func() {
		defer close(done)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Error(err)
			return
		}
		open(t, b, dir)
	})
	defer timer.Stop()
	if code, _, errs := run("--data-dir", dir, "await_startup", "--timeout", "10"); code != 0 {
		t.Errorf("exit %d, %s", code, errs)
	}
	<-done
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

// A second stop finds no data directory with a node, and leaves whatever answers at the default address alone.
func TestStopStopsNoNodeThatNobodyNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"BARTLEBY_URL", "BARTLEBY_USER", "BARTLEBY_DATA_DIR"} {
		t.Setenv(name, "")
	}
	for _, verb := range []string{"stop", "shutdown"} {
		if code, _, errs := run(verb); code != 69 || !strings.Contains(errs, "name the node by --data-dir or --url") {
			t.Errorf("%s: exit %d, %s; want 69 and how to name a node", verb, code, errs)
		}
	}
}

func TestHelpOfAVerbThatIsNotThere(t *testing.T) {
	for _, args := range [][]string{{"help", "nosuch"}, {"help", "lst_queues"}} {
		if code, _, errs := run(args...); code != 64 || !strings.Contains(errs, "Command '"+args[1]+"' not found") {
			t.Errorf("%q: exit %d, %s; want 64", args, code, errs)
		}
	}
	for _, args := range [][]string{{"help"}, {"help", "stop"}, {"help", "stop", "now"}, {"stop", "--help"}} {
		if code, out, errs := run(args...); code != 0 || out == "" {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
}

// A replay whose node goes in the middle says what became of it, and what to do.
func TestAReplayThatIsCutOffTellsHowToGoOn(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer s.Close()
	code, _, errs := run("--url", s.URL, "replay", "q")
	if code != 69 || !strings.Contains(errs, "EOF") || !strings.Contains(errs, "Run the command again to continue.") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, _, errs = run("--url", s.URL, "replay", "q", "--dry-run"); strings.Contains(errs, "Run the command again") {
		t.Errorf("a dry run moves nothing, and says: %s", errs)
	}
}

// A replay that leaves messages where they were ends with a code that says so, and a dry run if all would stay. What is
// of no death counts only where nothing else went.
func TestAReplayThatLeavesMessagesHasACodeOfItsOwn(t *testing.T) {
	for answer, want := range map[string]int{
		`{"examined":3,"matched":3,"replayed":3,"to":{"x":3}}`: 0,
		`{"examined":0}`: 0,
		`{"examined":3,"matched":3,"refused":3,"refused_by":{"queue 'q' is full":2},"refused_by_others":1}`: 75,
		`{"examined":3,"matched":3,"replayed":2,"unroutable":1,"to":{"x":1},"to_others":1}`:                 75,
		`{"examined":3,"no_origin":3}`:                          75,
		`{"examined":3,"matched":2,"replayed":2,"no_origin":1}`: 0,
		`{"examined":3,"matched":3,"gone":3}`:                   0,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		code, out, errs := run("--url", s.URL, "replay", "q")
		if code != want || want == 75 && !strings.Contains(errs, " stay in queue 'q', ") {
			t.Errorf("%s: exit %d, %s; want %d", answer, code, errs, want)
		}
		for key, text := range map[string]string{"refused_by_others": "1  stay: other queues are full or were deleted", "to_others": "1  to other queues"} {
			if strings.Contains(answer, key) && !strings.Contains(out, text) {
				t.Errorf("%s: %s, and nothing of others", answer, out)
			}
		}
		dry := want
		if strings.Contains(answer, `"to"`) { // something would go
			dry = 0
		}
		if code, _, errs := run("--url", s.URL, "replay", "q", "--dry-run"); code != dry || dry == 75 && !strings.Contains(errs, " would stay in queue 'q'") {
			t.Errorf("dry run of %s: exit %d, %s; want %d", answer, code, errs, dry)
		}
		s.Close()
	}
	if _, out, _ := run("replay", "--help"); !strings.Contains(out, "75: some messages stay") {
		t.Errorf("the help says nothing of the code:\n%s", out)
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

// A virtual host is made with a profile, which is listed.
func TestProfile(t *testing.T) {
	url, _ := node(t)
	t.Setenv("BARTLEBY_URL", url)
	if code, _, errs := run("add_vhost", "ali", "--profile", "apsaramq"); code != 0 {
		t.Fatal(errs)
	}
	if _, out, errs := run("-s", "list_vhosts", "name", "profile"); out != "/\trabbitmq\nali\tapsaramq\n" {
		t.Errorf("got %q, %s", out, errs)
	}
	if code, _, errs := run("add_vhost", "odd", "--profile", "kafka"); code == 0 || !strings.Contains(errs, "kafka is not a valid profile") {
		t.Errorf("exit %d, %s", code, errs)
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

// The password may stand in a file, which a command line does not show.
func TestPasswordFile(t *testing.T) {
	url, _ := node(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("guest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run("--url", url, "--user", "guest", "--password-file", file, "list_users"); code != 0 {
		t.Errorf("with the file: %d %s", code, errs)
	}
	if code, _, errs := run("--url", url, "--user", "guest", "--password-file", file+"none", "list_users"); code != 77 || !strings.Contains(errs, "password file") {
		t.Errorf("without it: %d %s", code, errs)
	}
}

// An argument without a value is "undefined" where it is listed, not a text and not left out, and has a type.
func TestVoidArgumentsAreListed(t *testing.T) {
	url, b := node(t)
	void := amqp091.Table{{Key: "nothing", Value: nil}}
	c := b.AsOperator("test", "/")
	_, err := c.DeclareQueue(topology.QueueDecl{Name: "q", Durable: true, Arguments: void})
	_, errX := c.DeclareExchange(topology.ExchangeDecl{Name: "x", Type: "headers", Durable: true, Arguments: void})
	_, errB := c.Bind(topology.BindingDecl{Source: "x", DestinationKind: topology.QueueResource, Destination: "q", Arguments: void})
	if err := errors.Join(err, errX, errB); err != nil {
		t.Fatal(err)
	}
	for verb, want := range map[string]string{
		"list_queues":    `{"nothing",undefined}`,
		"list_exchanges": `{"nothing",undefined}`,
		"list_bindings":  `{"nothing",undefined}`,
	} {
		code, out, errs := run("--url", url, "--user", "guest", "--password", "guest", "-q", verb, "arguments")
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %s%s; want %s", verb, code, out, errs, want)
		}
	}
}
