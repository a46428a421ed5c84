// Package websocket is the client's side of WebSocket (RFC 6455), for tests: no more than they need, and frames as they want them.
package websocket

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Conn is a connection on which both sides speak WebSocket. Each Write is a binary message; what is read are the bytes of the
// node's, one after the other. The rest is the socket's.
type Conn struct {
	net.Conn
	br   *bufio.Reader
	left uint64
	// Controls are the control frames that the node has sent: their kind, and then their content.
	Controls [][]byte
}

// The kinds of frames.
const (
	Continuation = 0
	Text         = 1
	Binary       = 2
	Close        = 8
	Ping         = 9
	Pong         = 10
)

// Request is what Upgrade sends, for a resource at a path. Lines replace headers that it has, by their names, or are added.
func Request(path string, lines http.Header) *http.Request {
	r, _ := http.NewRequest(http.MethodGet, "http://node"+path, nil)
	r.Header = http.Header{
		"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {"other, amqp"},
	}
	for name, values := range lines {
		r.Header[name] = values
	}
	return r
}

// Upgrade begins WebSocket on a socket, and fails with the answer's status if the node does not want to.
func Upgrade(nc net.Conn, r *http.Request) (*Conn, error) {
	if err := r.Write(nc); err != nil {
		return nil, err
	}
	br := bufio.NewReader(nc)
	answer, err := http.ReadResponse(br, r)
	if err != nil {
		return nil, err
	}
	const accepted = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" // for the key of Request, RFC 6455, 1.3
	switch h := answer.Header; {
	case answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, Refused(answer.StatusCode)
	case h.Get("Sec-WebSocket-Accept") != accepted, h.Get("Sec-WebSocket-Protocol") != "amqp", h.Get("Upgrade") != "websocket", h.Get("Connection") != "Upgrade":
		return nil, fmt.Errorf("the answer's headers are %v", h)
	}
	return &Conn{Conn: nc, br: br}, nil
}

// Refused is the status of HTTP with which a node refuses a WebSocket.
type Refused int

// Error implements error.
func (r Refused) Error() string { return fmt.Sprintf("refused with the status %d", int(r)) }

// Frame is a frame of a client, with a mask.
func Frame(kind byte, final bool, payload []byte) []byte {
	b := []byte{kind}
	if final {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i&3])
	}
	return b
}

// Write implements io.Writer.
func (c *Conn) Write(p []byte) (int, error) {
	_, err := c.Conn.Write(Frame(Binary, true, p))
	return len(p), err
}

// Read implements io.Reader. It ends with io.EOF at the node's close.
func (c *Conn) Read(p []byte) (int, error) {
	for c.left == 0 {
		var head [2]byte
		if _, err := io.ReadFull(c.br, head[:]); err != nil {
			return 0, err
		}
		n := uint64(head[1])
		if n == 126 {
			var size [2]byte
			if _, err := io.ReadFull(c.br, size[:]); err != nil {
				return 0, err
			}
			n = uint64(binary.BigEndian.Uint16(size[:]))
		}
		if n > 1<<16 || head[0]&0x80 == 0 {
			return 0, fmt.Errorf("a frame that begins with % x", head)
		}
		kind := head[0] & 0x0f
		if kind == Binary {
			c.left = n
			continue
		}
		control := append([]byte{kind}, make([]byte, n)...)
		if _, err := io.ReadFull(c.br, control[1:]); err != nil {
			return 0, err
		}
		if c.Controls = append(c.Controls, control); kind == Close {
			return 0, io.EOF
		}
	}
	n, err := c.br.Read(p[:min(uint64(len(p)), c.left)])
	c.left -= uint64(n)
	return n, err
}
