// Package serving has what the sessions of all protocols do alike for a client: they log it in while its socket is open,
// read its socket, keep what waits for it, and write it. It knows no protocol.
//
// Goroutines: one watches the socket of each client that logs in; Login.Authenticate waits for it. The writer of an Output sends
// what others leave to it; Output.End waits for it.
package serving

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// Login is a client's attempt to log in.
type Login struct {
	Broker *broker.Broker
	Log    *slog.Logger
	Socket net.Conn
	// Deadline is when the handshake times out. It is the socket's read deadline before and after.
	Deadline time.Time
	// Stands is called with the state of the login.
	Stands func(broker.Standing)
	// MaxAhead is how many bytes the client may send meanwhile. A client that sends more is disconnected, because the node could
	// no longer see that its socket is closed.
	MaxAhead int
}

// Authenticate authenticates the client, while its socket is open and the handshake has not timed out. ahead is what the client
// has sent meanwhile.
func (l *Login) Authenticate(given auth.Credentials) (id *broker.Identity, ahead []byte, err error) {
	var peer net.IP
	if a, ok := l.Socket.RemoteAddr().(*net.TCPAddr); ok {
		peer = a.IP
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(bug.Guarded(l.Log, "a client that logs in", func() { // ends with the wait below
		var open bool
		if ahead, open = l.readAhead(); !open {
			cancel()
		}
	}))
	id, err = l.Broker.AuthenticateTelling(ctx, given, peer, l.Stands)
	_ = l.Socket.SetReadDeadline(time.Now())
	watch.Wait()
	_ = l.Socket.SetReadDeadline(l.Deadline)
	return id, ahead, err
}

// readAhead reads until a deadline stops it. open is false if before that the socket is closed, the handshake times out, or
// the client has sent too much.
func (l *Login) readAhead() (ahead []byte, open bool) {
	var b [256]byte
	for len(ahead) < l.MaxAhead {
		n, err := l.Socket.Read(b[:])
		ahead = append(ahead, b[:n]...)
		if err != nil {
			return ahead, errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(l.Deadline)
		}
	}
	return ahead, false
}

// DefaultMechanisms are those that a client is offered unless the configuration names some, the preferred one first (BR-2.1).
// RabbitMQ offers ANONYMOUS too, and so do we in strict mode if there are credentials to log in with.
func DefaultMechanisms(anonymous auth.Credentials, strict bool) []string {
	list := []string{"PLAIN", "AMQPLAIN"}
	if strict && anonymous.User != "" {
		list = append(list, "ANONYMOUS")
	}
	return list
}

// Mechanism starts the exchange of a SASL mechanism that is among those offered. secure is nil without TLS; anonymous are the
// credentials of ANONYMOUS.
func Mechanism(name string, offered []string, secure *broker.TLS, anonymous auth.Credentials) (auth.Mechanism, bool) {
	if !slices.Contains(offered, name) {
		return nil, false
	}
	switch name {
	case "EXTERNAL":
		if secure == nil || secure.User == "" {
			return nil, false
		}
		return auth.NewExternal(secure.User), true
	case "ANONYMOUS":
		return auth.NewAnonymous(anonymous), true
	}
	return auth.NewMechanism(name)
}

// RefusalDelay is how long a client waits for its refusal, which slows down guessing (BR-1.8, BR-2.4, BR-2.5).
const RefusalDelay = 3 * time.Second

// Delay waits for the delay of a refusal, or for the client to disconnect, which gone says. If the client keeps sending, it is
// not read for longer than most bytes.
func Delay(nc net.Conn, most int) (gone bool) {
	timer := time.NewTimer(RefusalDelay)
	defer timer.Stop()
	_ = nc.SetReadDeadline(time.Now().Add(RefusalDelay))
	var b [256]byte
	for read := 0; read <= most; {
		n, err := nc.Read(b[:])
		if err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
		read += n
	}
	<-timer.C
	return false
}
