package config

import (
	"fmt"
	"log/slog"
)

// notLevel follows a value in an error.
const notLevel = "is not a log level: use debug, info, warning, error or none"

// LogLevel returns the level that RabbitMQ's name means; on is false for "none".
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
	return 0, false, fmt.Errorf("%q "+notLevel, name)
}
