package rabbitmqadmin

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bartleby.mq/test/node"
)

var (
	program = flag.String("rabbitmqadmin", "rabbitmqadmin", "the program")
	record  = flag.Bool("record", false, "record what the peer's answers look like")
	peer    = flag.String("peer", "127.0.0.1:15674", "HOST:PORT of the management API of RabbitMQ 4.0")
)

const (
	script = "testdata/script.txt"
	golden = "testdata/rabbitmq-4.0.txt"
)

// RabbitMQ's own program prints with this node what it printed with RabbitMQ 4.0.
func TestEveryVerb(t *testing.T) {
	bin, err := exec.LookPath(*program)
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skip("rabbitmqadmin is not installed")
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	if *record {
		if err := os.WriteFile(golden, []byte(play(t, bin, *peer, string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	_, address := start(t)
	printsAsRecorded(t, bin, address)
}

// And so does the rabbitmqadmin that comes with this node.
func TestOwnRabbitmqadmin(t *testing.T) {
	built, address := start(t)
	own := filepath.Join(t.TempDir(), "rabbitmqadmin")
	if err := os.Link(built, own); err != nil {
		t.Fatal(err)
	}
	printsAsRecorded(t, own, address)
}

// start builds the program and starts a node.
func start(t *testing.T) (bin, address string) {
	t.Helper()
	dir := t.TempDir()
	bin, err := node.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(node.Options{Bin: bin, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return bin, n.HTTP
}

func printsAsRecorded(t *testing.T, bin, address string) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, play(t, bin, address, string(text)), string(want))
}

// play runs every line of the script and returns what was printed.
func play(t *testing.T, bin, address, script string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		args := append([]string{"-H", host, "-P", port}, strings.Fields(line)...)
		call := exec.Command(bin, args...)
		call.Env = append(os.Environ(), "HOME="+t.TempDir()) // where no configuration is
		printed, err := call.CombinedOutput()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(address, "NODE", bin, "rabbitmqadmin", filepath.Base(bin), "rabbitmqadmin").Replace(string(printed))
		fmt.Fprintf(&out, "$ %s\n%s", line, sortKeys(text))
		fmt.Fprintf(&out, "exit %d\n", code)
	}
	return out.String()
}

// sortKeys gives JSON one order of its keys, and text a line end.
func sortKeys(text string) string {
	var v any
	if strings.HasPrefix(text, "[") && json.Unmarshal([]byte(text), &v) == nil {
		if sorted, err := json.Marshal(v); err == nil {
			text = string(sorted)
		}
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// compare shows the commands that printed something else.
func compare(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split("\n"+got, "\n$ "), strings.Split("\n"+want, "\n$ ")
	if len(g) != len(w) {
		t.Fatalf("%d commands, the recording has %d", len(g)-1, len(w)-1)
	}
	for i := range g {
		if g[i] != w[i] {
			t.Errorf("got\n$ %s\nwant\n$ %s", g[i], w[i])
		}
	}
}
