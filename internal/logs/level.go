package logs

import (
	"log/slog"
	"maps"

	"bartleby.mq/internal/config"
)

// SetLevel sets the level of every output and category, whatever the configuration says,
// until Reload gets other levels than before. config.LogLevel defines the names.
func (l *Logs) SetLevel(name string) error {
	level, on, err := config.LogLevel(name)
	if err != nil {
		return err
	}
	if !on {
		level = off
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = &level
	next := *l.current.Load()
	next.outputs = atLevel(next.outputs, level)
	l.current.Store(&next)
	return nil
}

// atLevel are the outputs with one level for all categories.
func atLevel(outputs []output, level slog.Level) []output {
	levels := map[string]slog.Level{}
	for _, category := range config.LogCategories {
		levels[category] = level
	}
	var all []output
	for _, o := range outputs {
		all = append(all, output{o.handler, levels})
	}
	return all
}

// Level is the lowest level at which an output logs lines of the default category, by
// RabbitMQ's name: debug, info, warning, error or none.
func (l *Logs) Level() string {
	least := off
	for _, o := range l.current.Load().outputs {
		least = min(least, o.levels["default"])
	}
	for _, name := range []string{"debug", "info", "warning", "error"} {
		if level, _, _ := config.LogLevel(name); least <= level {
			return name
		}
	}
	return "none"
}

// sameLevels says whether two configurations have the same levels.
func sameLevels(a, b config.Log) bool {
	return a.Console.Level == b.Console.Level && a.File.Level == b.File.Level && maps.Equal(a.Categories, b.Categories)
}
