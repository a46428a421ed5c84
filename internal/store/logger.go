package store

import (
	"fmt"
	"log/slog"
)

// quietLogger passes Pebble's logging on: its chatter at debug level, its errors as they are.
type quietLogger struct {
	logger *slog.Logger
}

// Infof logs at debug level: flushes and compactions mean nothing to an operator.
func (q quietLogger) Infof(format string, args ...any) {
	q.logger.Debug("store", "pebble", fmt.Sprintf(format, args...))
}

// Errorf logs an error.
func (q quietLogger) Errorf(format string, args ...any) {
	q.logger.Error("store", "pebble", fmt.Sprintf(format, args...))
}

// Fatalf logs an error and does not return, which Pebble relies on: it calls it when going on would destroy data, such as
// after a failed sync of its log.
func (q quietLogger) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	q.logger.Error("store failed for good", "pebble", text)
	panic("store: " + text)
}

func (q quietLogger) backgroundError(err error) {
	q.logger.Error("store failed in the background", "error", err)
}
