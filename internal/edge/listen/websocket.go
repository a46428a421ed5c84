package listen

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Web are the settings of listeners whose clients speak AMQP 1.0 over WebSocket.
type Web struct {
	// Path is that of the only resource; "": /ws.
	Path string
	// Origins are the origins of the pages that may connect, "*" all; nil: those of the node's own host, by whatever port. A client that is no
	// browser names none, and may.
	Origins []string
}

const (
	defaultWebPath = "/ws"
	// webSubprotocol is the name of AMQP 1.0 over WebSocket (AMQP WebSocket Binding 1.0, 2.1).
	webSubprotocol = "amqp"
	// maxWebRequest is how many bytes the request of a client may have.
	maxWebRequest = 16 << 10
	// webFrame is how many bytes of output are in one frame.
	webFrame = 8 << 10
	// controlTimeout is how long a client may take to read a control frame.
	controlTimeout = 5 * time.Second
	// maxControl is the most that a control frame has (RFC 6455, 5.5).
	maxControl = 125
)

// A WebSocket is the connection of a client that speaks WebSocket (RFC 6455), as a session sees it: a stream of the bytes of binary
// messages. Where a message ends means nothing (AMQP WebSocket Binding 1.0, 2.3), so none is kept, and none is too long.
//
// A deadline that passes ends a read and loses nothing: sessions are interrupted by it. Libraries end the connection then.
type WebSocket struct {
	net.Conn // TCP, or TLS

	// Owned by the reader.
	br         *bufio.Reader
	left       uint64 // bytes of the present frame that are to come
	mask       [4]byte
	at         int  // place in the mask
	fragmented bool // the present message has further frames

	pong atomic.Pointer[[]byte] // the latest ping that is to be answered; nil: none

	mu     sync.Mutex // guards what follows; held while writing
	frame  []byte
	closed bool // close was sent

	deadline sync.Mutex // guards writeBy
	writeBy  time.Time  // the write deadline, as the session has set it
}

var _ net.Conn = (*WebSocket)(nil)

// The kinds of frames, and the codes of close (RFC 6455, 5.2 and 7.4.1).
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10

	closeNormal      = 1000
	closeProtocol    = 1002
	closeUnsupported = 1003
)

// Read implements net.Conn.
func (w *WebSocket) Read(p []byte) (int, error) {
	for w.left == 0 {
		if err := w.next(); err != nil {
			return 0, err
		}
	}
	n, err := w.br.Read(p[:min(uint64(len(p)), w.left)])
	for i := range p[:n] {
		p[i] ^= w.mask[(w.at+i)&3]
	}
	w.at = (w.at + n) & 3
	w.left -= uint64(n)
	return n, err
}

// next reads the header of the next frame, and all of it if it is a control frame. A header that has not come whole stays in the buffer.
func (w *WebSocket) next() error {
	b, err := w.br.Peek(2)
	if err != nil {
		return err
	}
	final, kind, length := b[0]&0x80 != 0, b[0]&0x0f, uint64(b[1]&0x7f)
	if b[0]&0x70 != 0 || b[1]&0x80 == 0 {
		return w.fail(closeProtocol, "a frame with unknown bits, or without a mask")
	}
	size := 2
	switch length {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if b, err = w.br.Peek(size + len(w.mask)); err != nil {
		return err
	}
	switch length {
	case 126:
		length = uint64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		if length = binary.BigEndian.Uint64(b[2:]); length >= 1<<63 {
			return w.fail(closeProtocol, "a frame that is too long")
		}
	}
	mask := [4]byte(b[size:])
	size += len(mask)
	if kind >= opClose {
		if !final || length > maxControl {
			return w.fail(closeProtocol, "a control frame in pieces")
		}
		return w.control(kind, size, int(length), mask)
	}
	switch {
	case kind == opText:
		return w.fail(closeUnsupported, "a message of text")
	case kind != opBinary && kind != opContinuation, (kind == opContinuation) != w.fragmented:
		return w.fail(closeProtocol, "a frame out of turn")
	}
	_, _ = w.br.Discard(size)
	w.fragmented, w.mask, w.at, w.left = !final, mask, 0, length
	return nil
}

// control handles a control frame.
func (w *WebSocket) control(kind byte, head, length int, mask [4]byte) error {
	b, err := w.br.Peek(head + length)
	if err != nil {
		return err
	}
	payload := slices.Clone(b[head:])
	for i := range payload {
		payload[i] ^= mask[i&3]
	}
	_, _ = w.br.Discard(head + length)
	switch kind {
	case opClose:
		w.sendClose(payload[:min(len(payload), 2)])
		return io.EOF
	case opPing:
		w.pong.Store(&payload)
		w.answerPing()
	case opPong:
	default:
		return w.fail(closeProtocol, "a frame of an unknown kind")
	}
	return nil
}

// fail ends the connection because of what the client has sent.
func (w *WebSocket) fail(code uint16, text string) error {
	w.sendClose(binary.BigEndian.AppendUint16(nil, code))
	return fmt.Errorf("WebSocket: %s", text)
}

// Write implements net.Conn.
func (w *WebSocket) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	if w.closed {
		err = net.ErrClosed
	}
	for n < len(p) && err == nil {
		part := p[n:min(n+webFrame, len(p))]
		if err = w.write(opBinary, part); err == nil {
			n += len(part)
		}
	}
	w.mu.Unlock()
	w.answerPing()
	return n, err
}

// write writes one frame. REQUIRES: w.mu.
func (w *WebSocket) write(kind byte, payload []byte) error {
	b := append(w.frame[:0], 0x80|kind)
	if len(payload) < 126 {
		b = append(b, byte(len(payload)))
	} else {
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(len(payload))) // not more than webFrame
	}
	w.frame = append(b, payload...)
	_, err := w.Conn.Write(w.frame)
	return err
}

// answerPing answers the latest ping, unless a write is under way, which does it afterwards: a reader must not wait for a client
// that reads nothing.
func (w *WebSocket) answerPing() {
	for w.pong.Load() != nil && w.mu.TryLock() {
		if payload := w.pong.Swap(nil); payload != nil && !w.closed {
			w.writeSoon(opPong, *payload)
		}
		w.mu.Unlock()
	}
}

// sendClose says that nothing more comes, unless a write is under way: then its client reads nothing, or will see the socket close.
func (w *WebSocket) sendClose(payload []byte) {
	if !w.mu.TryLock() {
		return
	}
	if !w.closed {
		w.closed = true
		w.writeSoon(opClose, payload)
	}
	w.mu.Unlock()
}

// writeSoon writes a control frame within controlTimeout, or ends the connection. A deadline of the session that has passed is that of
// an earlier write, for there is none under way. REQUIRES: w.mu.
func (w *WebSocket) writeSoon(kind byte, payload []byte) {
	w.deadline.Lock()
	now := time.Now()
	by := now.Add(controlTimeout)
	if w.writeBy.After(now) && w.writeBy.Before(by) {
		by = w.writeBy
	}
	_ = w.Conn.SetWriteDeadline(by)
	w.deadline.Unlock()
	if err := w.write(kind, payload); err != nil {
		_ = w.Conn.Close()
	}
	w.deadline.Lock()
	_ = w.Conn.SetWriteDeadline(w.writeBy)
	w.deadline.Unlock()
}

// SetWriteDeadline implements net.Conn.
func (w *WebSocket) SetWriteDeadline(t time.Time) error {
	w.deadline.Lock()
	defer w.deadline.Unlock()
	w.writeBy = t
	return w.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (w *WebSocket) SetDeadline(t time.Time) error {
	return errors.Join(w.SetReadDeadline(t), w.SetWriteDeadline(t))
}

// CloseWrite says that nothing more comes.
func (w *WebSocket) CloseWrite() error {
	w.sendClose(binary.BigEndian.AppendUint16(nil, closeNormal))
	half, ok := w.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// request is the connection below: its beginning, up to the end of the client's request, is bounded.
type request struct {
	io.Reader
	left    int  // bytes
	over    bool // what follows is not bounded
	flooded bool // the last read got all that it could: the client has sent more
}

var errLongRequest = fmt.Errorf("the request has more than %d bytes", maxWebRequest)

// Read implements io.Reader.
func (r *request) Read(p []byte) (int, error) {
	if r.over {
		if r.flooded {
			runtime.Gosched() // control frames and empty ones are read without end otherwise, see serving.Socket.Fill
		}
		n, err := r.Reader.Read(p)
		r.flooded = n == len(p)
		return n, err
	}
	if r.left == 0 {
		return 0, errLongRequest
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// upgrade reads a client's request for a WebSocket, and answers it. ok is false if it does not get one.
func (s *Server) upgrade(nc net.Conn, web *Web, timeout time.Duration) (w *WebSocket, ok bool) {
	_ = nc.SetDeadline(time.Now().Add(timeout))
	in := &request{Reader: nc, left: maxWebRequest}
	br := bufio.NewReader(in)
	r, err := http.ReadRequest(br)
	if err != nil {
		s.Logger.Debug("connection ended before its request for a WebSocket", "peer", nc.RemoteAddr().String(), "error", err)
		if !errors.Is(err, io.EOF) {
			decline(nc, http.StatusBadRequest)
		}
		return nil, false
	}
	in.over = true
	if status, why := web.check(r, nc.LocalAddr()); status != http.StatusSwitchingProtocols {
		s.Logger.Warn("connection refused", "peer", nc.RemoteAddr().String(), "reason", why, "status", status)
		decline(nc, status)
		return nil, false
	}
	_, err = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+
		acceptKey(r.Header.Get("Sec-WebSocket-Key"))+"\r\nSec-WebSocket-Protocol: "+webSubprotocol+"\r\n\r\n")
	return &WebSocket{Conn: nc, br: br}, err == nil
}

// check says whether a client gets a WebSocket, by a status of HTTP, and why not. A page that may not connect, and a client that
// does not name the subprotocol, get RabbitMQ's status.
func (web *Web) check(r *http.Request, local net.Addr) (status int, why string) {
	path := web.Path
	if path == "" {
		path = defaultWebPath
	}
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	origin := r.Header.Get("Origin")
	switch {
	case r.URL.Path != path:
		return http.StatusNotFound, "there is nothing at this path"
	case origin != "" && !web.may(origin, r.Host, local):
		return http.StatusForbidden, "pages of this origin may not connect: set web_amqp.allow_origins.1"
	case !names(r.Header, "Sec-WebSocket-Protocol", webSubprotocol):
		return http.StatusBadRequest, "the client does not name the subprotocol " + webSubprotocol
	case r.Method != http.MethodGet, !r.ProtoAtLeast(1, 1), !names(r.Header, "Connection", "upgrade"), !names(r.Header, "Upgrade", "websocket"),
		r.Header.Get("Sec-WebSocket-Version") != "13":
		return http.StatusUpgradeRequired, "the request asks for no WebSocket of version 13"
	case err != nil || len(key) != 16:
		return http.StatusBadRequest, "Sec-WebSocket-Key is no key"
	}
	return http.StatusSwitchingProtocols, ""
}

// may says whether a page may connect that names this origin and host. At a loopback address a page of a foreign name is no page of this
// node, even if the name leads here.
func (web *Web) may(origin, host string, local net.Addr) bool {
	if web.Origins != nil {
		return slices.Contains(web.Origins, origin) || slices.Contains(web.Origins, "*")
	}
	from, err := url.Parse(origin)
	asked, bad := url.Parse("//" + host)
	if err != nil || bad != nil || from.Hostname() == "" || !strings.EqualFold(from.Hostname(), asked.Hostname()) {
		return false
	}
	at, ok := local.(*net.TCPAddr)
	return !ok || !at.IP.IsLoopback() || strings.EqualFold(from.Hostname(), "localhost") || net.ParseIP(from.Hostname()).IsLoopback()
}

// names says whether a header that is a list has the word.
func names(h http.Header, header, word string) bool {
	for _, line := range h.Values(header) {
		for one := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(one), word) {
				return true
			}
		}
	}
	return false
}

// acceptKey is the answer to a client's key (RFC 6455, 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// decline answers a request and closes.
func decline(nc net.Conn, status int) {
	more := ""
	if status == http.StatusUpgradeRequired {
		more = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
	}
	refuse(nc, fmt.Sprintf("HTTP/1.1 %d %s\r\n%sConnection: close\r\nContent-Length: 0\r\n\r\n", status, http.StatusText(status), more))
}
