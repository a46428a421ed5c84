package logs

import (
	"log/slog"
	"maps"

	"bartleby.mq/internal/config"
)

// SetLevel has every output and category log from a level on, whatever the configuration
// says, until Reload is told of other levels than before. The name is one that
// config.LogLevel knows.
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

// Level is the least level of which lines of the default category are logged anywhere,
// by RabbitMQ's name: debug, info, warning, error or none.
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
