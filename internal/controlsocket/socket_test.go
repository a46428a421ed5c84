package controlsocket

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// talk has one word go each way between what dial returns and what l accepts.
func talk(t *testing.T, l net.Listener, dial func(context.Context, string) (net.Conn, error), dir string) {
	t.Helper()
	heard := make(chan error, 1)
	go func() { // ends with the connection
		c, err := l.Accept()
		if err == nil {
			word := make([]byte, 4)
			if _, err = io.ReadFull(c, word); err == nil {
				_, err = c.Write(word)
			}
			err = errors.Join(err, c.Close())
		}
		heard <- err
	}()
	c, err := dial(t.Context(), dir)
	if err != nil {
		t.Fatal("dial: ", err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	if back, err := io.ReadAll(c); err != nil || string(back) != "ping" {
		t.Errorf("came back: %q, %v", back, err)
	}
	if err := <-heard; err != nil {
		t.Error("accept: ", err)
	}
}

// With a token: who knows the file gets in, who does not is not heard; the file goes
// with the listener, and a new one has another token.
func TestToken(t *testing.T) {
	dir := t.TempDir()
	if _, err := dialToken(t.Context(), dir); !errors.Is(err, ErrNoNode) {
		t.Errorf("without a node: %v, want ErrNoNode", err)
	}
	path := filepath.Join(dir, tokenFile)
	var files []string
	for range 2 {
		l, err := listenToken(dir)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, string(text))
		talk(t, l, dialToken, dir)
		refuses(t, l)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Close: %v, want no file", err)
		}
	}
	if files[0] == files[1] {
		t.Error("the token is the same after a restart")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dialToken(t.Context(), dir); err == nil || errors.Is(err, ErrNoNode) {
		t.Errorf("with half a file: %v, want an error about it", err)
	}
	if err := os.WriteFile(path, []byte(files[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dialToken(t.Context(), dir); !errors.Is(err, ErrNoNode) {
		t.Errorf("with the file of a node that was killed: %v, want ErrNoNode", err)
	}
}

// refuses looks that l does not hear a peer that has another token.
func refuses(t *testing.T, l net.Listener) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	wrong := make([]byte, 64)
	if _, err := c.Write(append(wrong, "ping"...)); err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	for range 2 {
		if n, err := in.Read(make([]byte, 4)); n != 0 || !errors.Is(err, errWrongToken) {
			t.Errorf("a peer with another token: %d bytes, %v", n, err)
		}
	}
}
