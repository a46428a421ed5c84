package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// askRestart is this program's word for asking the run at a URL for a restart.
const askRestart = "ask-restart"

// restarter restarts the broker for stories. They ask for it, so that the new broker
// is a child of this program and not of a cell, whose processes are killed at its end.
type restarter struct {
	script  string      // what a story executes
	address string      // HOST:PORT, where it asks
	allowed atomic.Bool // whether the cell that runs now runs alone
	server  *http.Server
	restart sync.Mutex // held while the broker is away
}

// newRestarter serves restarts of the broker; the script that asks is written into dir.
func newRestarter(ctx context.Context, b *broker, dir string) (*restarter, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &restarter{script: filepath.Join(dir, "restart-broker"), address: l.Addr().String()}
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !r.allowed.Load() {
			http.Error(w, "a story that restarts the broker must be marked alone", http.StatusConflict)
			return
		}
		r.restart.Lock()
		defer r.restart.Unlock()
		if err := b.restart(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	go func() { _ = r.server.Serve(l) }() // until close
	text := fmt.Sprintf("#!/bin/sh\nexec '%s' %s http://%s/\n", program, askRestart, r.address)
	if err := os.WriteFile(r.script, []byte(text), 0o755); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// wait returns when no restart is under way: whoever asked may have gone since.
func (r *restarter) wait() {
	r.restart.Lock()
	defer r.restart.Unlock()
}

func (r *restarter) close() { _ = r.server.Close() }

// requestRestart asks the run that serves url for a restart, and waits for it.
func requestRestart(url string) error {
	resp, err := http.Post(url, "text/plain", nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, tailBytes))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(string(text))
	}
	return err
}
