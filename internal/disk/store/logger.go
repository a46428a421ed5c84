package store

import (
	"fmt"
	"log/slog"
)

// quietLogger logs for Pebble: informational lines at debug level, errors as errors.
type quietLogger struct {
	logger *slog.Logger
	dir    string
	failed *failure
}

// Infof logs at debug level: flushes and compactions mean nothing to an operator.
func (q quietLogger) Infof(format string, args ...any) {
	q.logger.Debug("store", "pebble", fmt.Sprintf(format, args...))
}

// Errorf logs an error.
func (q quietLogger) Errorf(format string, args ...any) {
	q.logger.Error("store", "pebble", fmt.Sprintf(format, args...))
}

// Fatalf reports the failure to the owner and does not return. Pebble relies on that: it calls Fatalf if continuing would
// destroy data, for example after a failed sync of its manifest.
func (q quietLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("store: %s: %w", q.dir, fmt.Errorf(format, args...))
	q.failed.set(err)
	panic(err)
}

// backgroundError reports a failed write of tables to the owner. Pebble would try again
// forever.
func (q quietLogger) backgroundError(err error) {
	q.failed.set(fmt.Errorf("store: %s: in the background: %w", q.dir, told(q.dir, err)))
}
