//go:build !unix

package controlsocket

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

// Listen opens the control socket of a data directory that the caller has locked. It replaces
// the file of a killed node.
func Listen(dir string) (net.Listener, error) { return listenToken(dir) }

// Dial connects to the control socket of a data directory. Its error may be or wrap ErrNoNode or a
// *NotYoursError.
func Dial(ctx context.Context, dir string) (net.Conn, error) { return dialToken(ctx, dir) }

// Mine says whether dir has the control socket of a node that this user may use, judging by the
// files.
func Mine(dir string) bool {
	f, err := os.Open(filepath.Join(dir, tokenFile))
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// Lets is Mine: the owner of a file is not known here.
func Lets(dir string) bool { return Mine(dir) }
