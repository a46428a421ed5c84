//go:build unix

package serving

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// RawWriter writes what a socket accepts without blocking.
type RawWriter struct {
	rc  syscall.RawConn
	buf []byte
	n   int
	err error
	try func(fd uintptr) bool
}

// NewRawWriter returns one for a socket, nil if that cannot be written without blocking.
func NewRawWriter(nc net.Conn) *RawWriter {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil // TLS, or a pipe in a test
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	w := &RawWriter{rc: rc}
	w.try = func(fd uintptr) bool {
		for len(w.buf) > w.n {
			n, err := syscall.Write(int(fd), w.buf[w.n:])
			if n > 0 {
				w.n += n
			}
			if err == syscall.EINTR {
				continue
			}
			if err == syscall.EAGAIN {
				return true
			}
			if err != nil {
				w.err = err
				return true
			}
		}
		return true
	}
	return w
}

// Write writes the beginning of b and leaves the rest in b. One goroutine at a time may call it.
func (w *RawWriter) Write(b *[]byte) error {
	if len(*b) == 0 {
		return nil
	}
	w.buf, w.n, w.err = *b, 0, nil
	err := w.rc.Write(w.try)
	w.buf = nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil // from an earlier write; the writer goroutine sets another deadline
	}
	if err == nil {
		err = w.err
	}
	if w.n == len(*b) {
		*b = (*b)[:0]
	} else {
		*b = append((*b)[:0], (*b)[w.n:]...)
	}
	return err
}
