//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// stop_app and start_app stop and start the broker of a process, which ends on a signal whatever the broker does.
func TestStopAppAndStartApp(t *testing.T) {
	dir := t.TempDir()
	data, conf := filepath.Join(dir, "data"), filepath.Join(dir, "rabbitmq.conf")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(code int, want string, args ...string) {
		t.Helper()
		c := program(t, append(args, "--data-dir", data)...)
		out, err := c.CombinedOutput()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		if got := c.ProcessState.ExitCode(); got != code || !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s ends with %d and says %s; want %d and %q", strings.Join(args, " "), got, out, code, want)
		}
	}
	begin := func() (c *exec.Cmd, lines *bufio.Scanner) {
		t.Helper()
		c = program(t, "server", "--data-dir", data, "--config", conf, "--amqp", "127.0.0.1:0", "--http", "none", "--prometheus", "none")
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		c.Stderr = c.Stdout
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if lines = bufio.NewScanner(out); !says(lines, "Server startup complete") {
			t.Fatal("it does not start")
		}
		return c, lines
	}
	ends := func(c *exec.Cmd, lines *bufio.Scanner, code int, words string) {
		t.Helper()
		if !says(lines, words) {
			t.Errorf("the log does not say %s", words)
		}
		for lines.Scan() {
		}
		_ = c.Wait()
		if got := c.ProcessState.ExitCode(); got != code {
			t.Errorf("it ends with %d, want %d", got, code)
		}
	}

	configure("cluster_name = before")
	c, lines := begin()
	run(0, "Stopping rabbit application", "stop_app")
	for _, verb := range []string{"list_queues", "dlq jobs", "rules ls", "lint"} {
		run(64, "Start it with 'rabbitmqctl start_app'", strings.Fields(verb)...)
	}
	for _, check := range []string{"status", "check_running", "is_running", "check_alarms", "check_port_connectivity", "check_port_listener 5672", "check_virtual_hosts", "check_certificate_expiration"} {
		run(69, "Start it with 'rabbitmqctl start_app'", strings.Fields(check)...)
	}
	run(75, "timed out", "await_startup", "--timeout", "0.2")
	run(0, "Ping succeeded", "ping")
	run(0, "", "stop_app")
	configure("cluster_name = after")
	run(0, "Starting node", "start_app")
	run(0, "after", "cluster_status") // it reads its configuration again
	run(0, "", "start_app")
	run(0, "", "stop_app")
	if err := c.Process.Signal(syscall.SIGHUP); err != nil { // what is stopped has nothing to reload
		t.Error(err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	ends(c, lines, 0, "msg=stopped")

	c, lines = begin()
	run(0, "", "stop_app")
	run(0, "Stopping and halting", "stop")
	ends(c, lines, 0, "msg=stopped")

	c, lines = begin()
	run(0, "", "stop_app")
	configure("listeners.tcp.default = nonsense")
	run(69, "listeners.tcp.default: \"nonsense\"", "start_app")
	run(69, "Start it with 'rabbitmqctl start_app'", "check_running")
	configure("cluster_name = mended")
	run(0, "", "start_app")
	run(0, "mended", "cluster_status")
	run(0, "", "stop_app")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	configure("web_amqp.tcp.ip = 127.0.0.1\nweb_amqp.tcp.port = " + port)
	run(70, "the node has ended; its log says why", "start_app")
	ends(c, lines, 1, "address already in use")
}

// Many who stop and start the application at once get in turn what each asked for.
func TestManyStopAndStartAppAtOnce(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	c := program(t, "server", "--data-dir", data, "--amqp", "127.0.0.1:0", "--http", "none", "--prometheus", "none")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !says(lines, "Server startup complete") {
		t.Fatal("it does not start")
	}
	var all sync.WaitGroup
	for k := range 20 {
		all.Go(func() {
			verb := []string{"stop_app", "start_app"}[k%2]
			if said, err := program(t, verb, "--data-dir", data).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", verb, err, said)
			}
		})
	}
	read := make(chan struct{})
	go func() { // or the node would wait for room in the pipe
		defer close(read)
		for lines.Scan() {
		}
	}()
	all.Wait()
	if said, err := program(t, "start_app", "--data-dir", data).CombinedOutput(); err != nil {
		t.Errorf("in the end: %v: %s", err, said)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	<-read
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}
