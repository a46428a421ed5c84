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

// tokenFile is the file's name in the data directory. Who may read it is what the mode
// says on Unix, and the directory's access list on Windows.
const tokenFile = "ctl.json"

// access is what the file holds.
type access struct {
	Address string `json:"address"` // HOST:PORT, of loopback
	Token   string `json:"token"`   // what is said first on a connection, in hexadecimal
}

// listenToken is Listen where there is no socket with an owner: a port of loopback, at
// which only those are heard who say first what the file holds. It holds something
// else after each start.
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

// guarded is a listener that takes its file with it.
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
	_ = os.Remove(next) // of a node that was killed here; its mode might be another
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, g.path)
}

// Accept does not wait until the peer has said the token: the first Read does.
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

// Read reads what follows the token, and nothing where that is wrong.
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

// dialToken is Dial where Listen was listenToken.
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
