package controlsocket

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// tokenFile is the file's name in the data directory. Its mode on Unix, and the directory's
// access list on Windows, set who may read it.
const tokenFile = "ctl.json"

// access is the content of the file.
type access struct {
	Address string `json:"address"` // HOST:PORT, of loopback
	Token   string `json:"token"`   // the first bytes of a connection, in hexadecimal
}

// listenToken is Listen on systems without sockets that have an owner. It listens on a
// loopback port and accepts only clients that first send the token from the file. Each start
// makes a new token.
func listenToken(dir string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("port of the command line: %w", err)
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	g := &guarded{Listener: l, path: filepath.Join(dir, tokenFile), token: hex.EncodeToString(secret[:])}
	if err := g.write(); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("access of the command line: %w", err)
	}
	return g, nil
}

// guarded is a listener that removes its file when it is closed.
type guarded struct {
	net.Listener
	path   string
	token  string
	remove sync.Once
}

// write writes the file in one step, so that no reader finds half of it.
func (g *guarded) write() error {
	text, err := json.MarshalIndent(access{g.Addr().String(), g.token}, "", "  ")
	if err != nil {
		return err
	}
	next := g.path + ".new"
	_ = os.Remove(next) // left by a killed node, maybe with another mode
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, g.path)
}

// Accept does not wait for the token: the first Read does.
func (g *guarded) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &guardedConn{Conn: c, token: g.token}, nil
}

// Close ends the listener and removes the file.
func (g *guarded) Close() error {
	err := g.Listener.Close()
	g.remove.Do(func() { _ = os.Remove(g.path) })
	return err
}

// guardedConn is a connection that begins with the token.
type guardedConn struct {
	net.Conn
	token string
	once  sync.Once
	err   error
}

var errWrongToken = errors.New("the peer does not have the node's token")

// Read reads the bytes after the token. It fails if the token is wrong.
func (c *guardedConn) Read(p []byte) (int, error) {
	c.once.Do(func() {
		said := make([]byte, len(c.token))
		if _, c.err = io.ReadFull(c.Conn, said); c.err == nil && subtle.ConstantTimeCompare(said, []byte(c.token)) != 1 {
			c.err = errWrongToken
		}
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(p)
}

// dialToken is the Dial for listenToken.
func dialToken(ctx context.Context, dir string) (net.Conn, error) {
	text, err := os.ReadFile(filepath.Join(dir, tokenFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoNode
	case errors.Is(err, fs.ErrPermission):
		return nil, &NotYoursError{Dir: dir}
	case err != nil:
		return nil, err
	}
	var a access
	if err := json.Unmarshal(text, &a); err != nil || a.Address == "" || a.Token == "" {
		return nil, fmt.Errorf("cannot parse %s in %s", tokenFile, dir)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", a.Address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNoNode // it was killed
	}
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, a.Token); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
