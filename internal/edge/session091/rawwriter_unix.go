//go:build unix

package session091

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// rawWriter writes what a socket accepts without blocking.
type rawWriter struct {
	rc  syscall.RawConn
	buf []byte
	n   int
	err error
	try func(fd uintptr) bool
}

func newRawWriter(nc net.Conn) *rawWriter {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil // TLS, or a pipe in a test
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	w := &rawWriter{rc: rc}
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

// write writes the beginning of b and leaves the rest in b. REQUIRES: the pen.
func (w *rawWriter) write(b *[]byte) error {
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
