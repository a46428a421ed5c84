//go:build unix

package controlsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// socketFile is the socket's name in the data directory.
const socketFile = "ctl.sock"

// makingDir is the directory in which Listen makes the socket. Other users could open the
// socket before its mode is set, but they cannot enter this directory.
const makingDir = "ctl.new"

// Listen opens the control socket of a data directory that the caller has locked. It replaces
// the socket of a killed node.
func Listen(dir string) (net.Listener, error) {
	l, err := listenUnix(dir)
	if err != nil {
		return nil, fmt.Errorf("socket of the command line: %w", err)
	}
	return l, nil
}

func listenUnix(dir string) (net.Listener, error) {
	making := filepath.Join(dir, makingDir)
	if err := os.RemoveAll(making); err != nil {
		return nil, err
	}
	if err := os.Mkdir(making, 0o700); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(making) }()
	name, done, err := shorten(making, socketFile)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it moves
	made, path := filepath.Join(making, socketFile), filepath.Join(dir, socketFile)
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socket{UnixListener: l, path: path}, nil
}

// socket is a listener that removes its file when it is closed.
type socket struct {
	*net.UnixListener
	path   string
	remove sync.Once
}

// Close ends the listener and removes the file.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	s.remove.Do(func() { _ = os.Remove(s.path) })
	return err
}

// Addr names the socket's file, wherever it was bound.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Dial connects to the control socket of a data directory. Its error may be or wrap ErrNoNode or a
// *NotYoursError.
func Dial(ctx context.Context, dir string) (net.Conn, error) {
	path := filepath.Join(dir, socketFile)
	owner, err := ownerOf(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoNode
	case errors.Is(err, fs.ErrPermission):
		owner, _ = ownerOf(dir)
		return nil, &NotYoursError{dir, nameOf(owner)}
	case err != nil:
		return nil, err
	case !lets(owner):
		return nil, &NotYoursError{dir, nameOf(owner)} // do not send requests to another user
	}
	name, done, err := shorten(dir, socketFile)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", name)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoNode // the node is gone; it was killed if its socket is still there
	case errors.Is(err, fs.ErrPermission):
		return nil, &NotYoursError{dir, nameOf(owner)}
	}
	return c, err
}

// Mine says whether dir has the control socket of a node of this user, judging by the files.
func Mine(dir string) bool {
	owner, err := ownerOf(filepath.Join(dir, socketFile))
	return err == nil && owner == os.Geteuid()
}

// Lets says whether dir has the control socket of a node that this user may use, judging by the
// files: root may use every node.
func Lets(dir string) bool {
	owner, err := ownerOf(filepath.Join(dir, socketFile))
	return err == nil && lets(owner)
}

func lets(owner int) bool { return os.Geteuid() == owner || os.Geteuid() == 0 }

// unknownUser is the owner of a file that cannot be examined.
const unknownUser = -1

func ownerOf(path string) (uid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return unknownUser, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), nil
	}
	return unknownUser, nil
}

// nameOf is the user's name, or its number if it has no name.
func nameOf(uid int) string {
	if uid == unknownUser {
		return ""
	}
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
