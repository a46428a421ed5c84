//go:build !unix

package serving

import "net"

// RawWriter writes what a socket accepts without blocking. On systems other than Unix the writer goroutine does
// everything.
type RawWriter struct{}

// NewRawWriter returns nil.
func NewRawWriter(net.Conn) *RawWriter { return nil }

// Write does nothing.
func (*RawWriter) Write(*[]byte) error { return nil }
