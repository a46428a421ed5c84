package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// execute runs a client's script in its directory, with more environment, at most for
// limit; then it and all that it started are killed. It returns the last of its output.
func execute(ctx context.Context, limit time.Duration, c client, env []string, args ...string) (output string, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errors.New("killed: it took longer than "+limit.String()))
	defer cancel()
	out := &tail{max: tailBytes}
	cmd := exec.CommandContext(limited, "./"+args[0], args[1:]...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = 5 * time.Second // whoever left its group may hold the pipe
	err = cmd.Run()
	if cmd.Process != nil {
		_ = killGroup(cmd) // what a story has left running
	}
	if limited.Err() != nil {
		err = context.Cause(limited)
	}
	return out.String(), err
}
