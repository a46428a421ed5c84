package store

import (
	"fmt"
	"log/slog"
)

// quietLogger passes Pebble's logging on: its chatter at debug level, its errors as they are.
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

// Fatalf tells the owner of the failure and does not return, which Pebble relies on: it calls it when going on would destroy
// data, such as after a failed sync of its manifest.
func (q quietLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("store: %s: %w", q.dir, fmt.Errorf(format, args...))
	q.failed.set(err)
	panic(err)
}

// backgroundError tells the owner of a failure to write tables, which Pebble would
// try again for ever.
func (q quietLogger) backgroundError(err error) {
	q.failed.set(fmt.Errorf("store: %s: in the background: %w", q.dir, told(q.dir, err)))
}
