package config

import (
	"fmt"
	"log/slog"
)

// LogLevel is the level by RabbitMQ's name for it; on is false for "none".
func LogLevel(name string) (level slog.Level, on bool, err error) {
	switch name {
	case "debug":
		return slog.LevelDebug, true, nil
	case "info", "notice":
		return slog.LevelInfo, true, nil
	case "warning", "warn":
		return slog.LevelWarn, true, nil
	case "error", "critical", "alert", "emergency":
		return slog.LevelError, true, nil
	case "none":
		return 0, false, nil
	}
	return 0, false, fmt.Errorf("%q is no log level: it must be debug, info, warning, error or none", name)
}
