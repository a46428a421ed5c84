// Package node runs a Bartleby server as a process of its own, for the tests that
// kill it, flood it or look at what it uses. A Node owns the process and its data
// directory's lock; it knows nothing of what is said over the sockets.
package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Build compiles cmd/bartleby with the build tags into dir and returns the
// binary's path. It must be called from within the module.
func Build(dir string, tags ...string) (string, error) {
	bin := filepath.Join(dir, "bartleby")
	build := exec.Command("go", "build", "-tags", strings.Join(tags, ","), "-o", bin, "bartleby.mq/cmd/bartleby")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(build.Args, " "), err, out)
	}
	return bin, nil
}

// look looks into the directories of the sources, which go test notes while a test runs: without that a result of
// another server would be in its cache, since a test that runs a server does not import it.
var look = sync.OnceValue(func() error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	return nil
})

// Options say which server to run and how.
type Options struct {
	Bin    string   // the bartleby binary
	Dir    string   // the data directory, the configuration and the log are made in it
	Config string   // content of the configuration file
	Env    []string // beside Environment
}

// Environment is this process's own, without what would tell a server or a command line of
// another node than the test's.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "BARTLEBY_") || strings.HasPrefix(v, "RABBITMQ_")
	})
}

// Node is a running server.
type Node struct {
	AMQP       string // HOST:PORT
	HTTP       string // HOST:PORT of the management API
	Prometheus string // HOST:PORT

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone
}

// ErrEnded is what Start returns when the process ended before it served.
var ErrEnded = errors.New("the server ended before it served")

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Launch starts the process and does not wait until it serves.
func Launch(o Options) (*Node, <-chan error, error) {
	if err := look(); err != nil {
		return nil, nil, err
	}
	config := filepath.Join(o.Dir, "bartleby.conf")
	if err := os.WriteFile(config, []byte(o.Config), 0o644); err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(filepath.Join(o.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	n := &Node{ended: make(chan struct{})}
	n.cmd = exec.Command(o.Bin, "server", "--data-dir", filepath.Join(o.Dir, "data"), "--config", config,
		"--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--prometheus", "127.0.0.1:0")
	n.cmd.Env = append(Environment(), o.Env...)
	r, w, err := os.Pipe()
	if err != nil {
		_ = log.Close()
		return nil, nil, err
	}
	n.cmd.Stdout, n.cmd.Stderr = w, w
	err = n.cmd.Start()
	_ = w.Close()
	if err != nil {
		_, _ = r.Close(), log.Close()
		return nil, nil, err
	}
	serving := make(chan error, 1)
	go func() { // ends with the process
		n.follow(r, log, serving)
		_, _ = r.Close(), log.Close()
		_ = n.cmd.Wait()
		close(n.ended)
	}()
	return n, serving, nil
}

// Start starts the process and waits until it serves.
func Start(o Options) (*Node, error) {
	n, serving, err := Launch(o)
	if err != nil {
		return nil, err
	}
	select {
	case err = <-serving:
	case <-time.After(startTimeout):
		err = errors.New("the server does not serve in time")
	}
	if err != nil {
		n.Kill()
		return n, err
	}
	return n, nil
}

var addresses = regexp.MustCompile(`amqp=\[(\S+)\] http=(\S+) prometheus=(\S+)`)

// follow copies the server's log and watches it for the line that says that it serves.
func (n *Node) follow(r io.Reader, log io.Writer, serving chan<- error) {
	tell := sync.OnceFunc(func() { serving <- ErrEnded })
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		_, _ = io.WriteString(log, line)
		if m := addresses.FindStringSubmatch(line); m != nil && strings.Contains(line, "Server startup complete") {
			n.AMQP, n.HTTP, n.Prometheus = m[1], m[2], m[3]
			tell = func() {}
			serving <- nil
		}
		if err != nil {
			tell()
			return
		}
	}
}

// PID is the process's id.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Ended is closed when the process is gone.
func (n *Node) Ended() <-chan struct{} { return n.ended }

// Kill ends the process with SIGKILL and waits until it is gone.
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill() // it may be gone already
	<-n.ended
}

// Stop asks the process to end and waits until it is gone. It is an error if
// that takes long or the process reports one.
func (n *Node) Stop() error {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.ended:
	case <-time.After(stopTimeout):
		n.Kill()
		return errors.New("the server did not stop in time")
	}
	if state := n.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("the server stopped with %s", state)
	}
	return nil
}

// Killed says whether the process, which must be gone, ended by SIGKILL: as it
// was told, and not by a fault of its own.
func (n *Node) Killed() bool {
	status, ok := n.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// ExitCode is what the process, which must be gone, ended with; -1 if a signal ended it.
func (n *Node) ExitCode() int { return n.cmd.ProcessState.ExitCode() }
