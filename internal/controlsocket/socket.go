// Package controlsocket is the way of the command line into a node on its own machine without a
// password: through the data directory, as the user who owns that. Listen and Dial are
// its two ends. Whoever comes through is the node's operator.
//
// On Unix it is a socket, ctl.sock, that nobody else may open; elsewhere a port of
// loopback with a secret in a file, ctl.json (token.go).
//
// The file belongs to the node that Listen was called for: it is there while that node
// accepts, and is left behind only where the node was killed. The package does not
// keep two nodes out of one directory, the directory's lock does, and it knows
// nothing of what is said through the control socket.
package controlsocket

import "errors"

// ErrNoNode is what Dial returns for a data directory on which no node runs.
var ErrNoNode = errors.New("no node runs on the data directory")

// NotYoursError is what Dial returns for the node of another user.
type NotYoursError struct {
	Dir   string
	Owner string // name of the user whom the node belongs to; "" if that cannot be known
}

// Error says who may.
func (e *NotYoursError) Error() string {
	if e.Owner == "" {
		return "data directory " + e.Dir + " belongs to another user: only the owner's command line gets in there; be that user, or log in by --url, --user and --password"
	}
	return "data directory " + e.Dir + " belongs to user " + e.Owner + ": only that user's command line gets in there, and root's; be that user, or log in by --url, --user and --password"
}
