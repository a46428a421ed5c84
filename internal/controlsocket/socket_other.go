//go:build !unix

package controlsocket

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

// Listen opens the control socket of a data directory that the caller has locked. What a node
// that was killed has left there is replaced.
func Listen(dir string) (net.Listener, error) { return listenToken(dir) }

// Dial goes through the control socket of a data directory. The error is or wraps ErrNoNode or a
// *NotYoursError where it is one of these.
func Dial(ctx context.Context, dir string) (net.Conn, error) { return dialToken(ctx, dir) }

// Mine says whether a node that this user may enter has its control socket in dir, as far as
// files tell.
func Mine(dir string) bool {
	f, err := os.Open(filepath.Join(dir, tokenFile))
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// Lets is Mine: who owns a file is not known here.
func Lets(dir string) bool { return Mine(dir) }
