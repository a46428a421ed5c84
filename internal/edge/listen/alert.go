package listen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
)

// An alertReader knows the last alert that a client sent in the clear. A client of TLS 1.3 that does not accept the node's
// certificate may say so before it encrypts, and crypto/tls takes that for a damaged record ("bad record MAC").
type alertReader struct {
	net.Conn
	done bool   // the handshake is over: what follows is not looked at
	last []byte // the end of what was read
}

// alertBytes is the length of a record with an alert: type, version, length, level, description.
const alertBytes = 7

// Read implements net.Conn.
func (r *alertReader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if !r.done {
		r.last = append(r.last, b[max(0, n-alertBytes):n]...)
		r.last = r.last[max(0, len(r.last)-alertBytes):]
	}
	return n, err
}

// explain is the error of a handshake in words for who runs the node.
func (r *alertReader) explain(err error) error {
	var alert tls.AlertError
	const recordTypeAlert, fatal = 21, 2
	if l := r.last; len(l) == alertBytes && l[0] == recordTypeAlert && l[1] == 3 && l[3] == 0 && l[4] == 2 && l[5] == fatal {
		alert = tls.AlertError(l[6])
	} else if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "remote error" && reflect.ValueOf(op.Err).Kind() == reflect.Uint8 {
		alert = tls.AlertError(reflect.ValueOf(op.Err).Uint()) // crypto/tls does not export the type of an alert
	} else {
		return err
	}
	switch alert {
	case 42, 43, 44, 45, 46, 48: // bad, unsupported, revoked, expired or unknown certificate, unknown authority
		return fmt.Errorf("the client does not accept this node's certificate, or does not know the authority that issued it (%w)", alert)
	}
	return err
}
