//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram has the tests' binary be the program.
const asProgram = "BARTLEBY_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program is the program with arguments. It ends with the test at the latest.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

// A signal that comes while the node starts is heeded: the log says so at once, the node ends
// when it has started, and for a second signal right then.
func TestSignalsWhileTheNodeStarts(t *testing.T) {
	for name, second := range map[string]bool{"one": false, "two": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			definitions := filepath.Join(dir, "definitions.json")
			if err := syscall.Mkfifo(definitions, 0o600); err != nil {
				t.Fatal(err)
			}
			c := program(t, "server", "--data-dir", filepath.Join(dir, "data"), "--definitions", definitions,
				"--amqp", "127.0.0.1:0", "--http", "", "--prometheus", "")
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			c.Stderr = c.Stdout
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			// It starts, and goes on when the definitions are there.
			fifo, err := os.OpenFile(definitions, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			terminate := func() {
				if err := c.Process.Signal(syscall.SIGTERM); err != nil {
					t.Error(err)
				}
			}
			terminate()
			if !says(lines, "msg=stopping asked_by=terminated") {
				t.Error("the log does not say that it stops")
			}
			if second {
				terminate()
				if !says(lines, `msg="stopping at once"`) {
					t.Error("the log does not say that it stops at once")
				}
			} else if _, err := io.WriteString(fifo, "{}"); err != nil {
				t.Error(err)
			}
			_ = fifo.Close() // after a second signal nobody reads it
			if !second && !says(lines, "msg=stopped") {
				t.Error("the log does not say that it has stopped")
			}
			for lines.Scan() {
			}
			err = c.Wait()
			var ended *exec.ExitError
			if errors.As(err, &ended) && !second || err == nil && second || second && ended.ExitCode() != 1 {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// says looks for a line with the words given.
func says(lines *bufio.Scanner, words string) bool {
	for lines.Scan() {
		if strings.Contains(lines.Text(), words) {
			return true
		}
	}
	return false
}
