// Package controlsocket connects the command line to a node on the same machine without a
// password: through the data directory, as the user who owns it. The server calls Listen, the
// command line Dial. A client on this socket is the node's operator.
//
// On Unix it is a socket, ctl.sock, that only its owner may open; elsewhere a loopback port with
// a secret in a file, ctl.json (token.go).
//
// A listener owns the file. It exists while the node accepts connections; only a killed node
// leaves it behind. The package does not keep a second node out of a directory, which is the
// task of the directory's lock, and knows nothing of the protocol on the socket.
package controlsocket

import "errors"

// ErrNoNode is Dial's error for a data directory on which no node runs.
var ErrNoNode = errors.New("no node runs on the data directory")

// NotYoursError is Dial's error for the node of another user.
type NotYoursError struct {
	Dir   string
	Owner string // name of the node's owner; "" if it is unknown
}

// Error names the owner.
func (e *NotYoursError) Error() string {
	if e.Owner == "" {
		return "data directory " + e.Dir + " belongs to another user: only the owner's command line gets in there; be that user, or log in by --url, --user and --password"
	}
	return "data directory " + e.Dir + " belongs to user " + e.Owner + ": only that user's command line gets in there, and root's; be that user, or log in by --url, --user and --password"
}
