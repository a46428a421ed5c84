// Package logs writes a node's log lines to the console, to a file, or to both, as text or
// as JSON, with levels by output and by category. It also writes the log of administrative
// actions. The command bartleby calls it.
//
// A Logs owns the files that it opened. Its configuration can change while it is used:
// levels and formats apply to the next line, and files are reopened, as a rotation needs. It
// never decides what is logged.
package logs

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"bartleby.mq/internal/config"
)

// Logs are the outputs of a node.
type Logs struct {
	stdout, stderr io.Writer
	current        atomic.Pointer[state]

	mu          sync.Mutex // guards what follows, and changes
	file, audit *logFile
	configured  config.Log
	level       *slog.Level // as SetLevel set it; nil: the configuration's
}

// state is the configuration between two changes.
type state struct {
	outputs []output
	audit   slog.Handler // nil: audited actions are lines of the log
}

// output is one place lines go to.
type output struct {
	handler slog.Handler
	levels  map[string]slog.Level // by category
}

// off is a level that no line has.
const off = slog.Level(1000)

// Open begins to log. stdout and stderr are what the console's lines are written to.
func Open(c config.Log, stdout, stderr io.Writer) (*Logs, error) {
	l := &Logs{stdout: stdout, stderr: stderr}
	if err := l.Reload(c); err != nil {
		return nil, err
	}
	return l, nil
}

// Reload applies another configuration and reopens the files. A level from SetLevel stays if
// the configured levels are the same as before. An error changes nothing.
func (l *Logs) Reload(c config.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next state
	file, audit := (*logFile)(nil), (*logFile)(nil)
	var err error
	if c.File.On {
		path := c.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		if file, err = openLog(path); err != nil {
			return err
		}
	}
	if c.Audit != "" {
		path := c.Audit
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		if audit, err = openLog(path); err != nil {
			return errors.Join(err, file.close())
		}
		next.audit = slog.NewJSONHandler(audit, nil)
	}
	if c.Console.On {
		to := l.stderr
		if c.Stdio == "stdout" {
			to = l.stdout
		}
		next.outputs = append(next.outputs, newOutput(c, c.Console, to))
	}
	if c.File.On {
		next.outputs = append(next.outputs, newOutput(c, c.File, file))
	}
	if !sameLevels(c, l.configured) {
		l.level = nil
	}
	l.configured = c
	if l.level != nil {
		next.outputs = atLevel(next.outputs, *l.level)
	}
	l.current.Store(&next)
	err = errors.Join(l.file.close(), l.audit.close())
	l.file, l.audit = file, audit
	return err
}

// Close closes the files. Lines that come later are lost.
func (l *Logs) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.file.close(), l.audit.close())
}

// Logger writes lines of a category; "" is the default one.
func (l *Logs) Logger(category string) *slog.Logger {
	if category == "" {
		category = "default"
	}
	return slog.New(&handler{logs: l, category: category})
}

// Audit writes administrative actions: to their own file if there is one.
func (l *Logs) Audit() *slog.Logger {
	return slog.New(&handler{logs: l, category: "default", audit: true})
}

func newOutput(c config.Log, o config.LogOutput, to io.Writer) output {
	all := &slog.HandlerOptions{Level: slog.Level(-1000)} // levels are looked at before
	out := output{handler: slog.NewTextHandler(to, all), levels: map[string]slog.Level{}}
	if o.JSON {
		out.handler = slog.NewJSONHandler(to, all)
	}
	for _, category := range config.LogCategories {
		out.levels[category] = threshold(o.Level, c.Categories[category], c.Categories["default"])
	}
	return out
}

// threshold is the lowest level of a line that an output writes: the higher of the level of
// the category, or of the default category, and the level of the output.
func threshold(output string, category ...string) slog.Level {
	least, said := slog.LevelInfo, false
	take := func(name string) {
		level, on, err := config.LogLevel(name)
		if !on {
			level = off
		}
		if err == nil && (!said || level > least) {
			least, said = level, true
		}
	}
	for _, name := range category {
		if name != "" {
			take(name)
			break
		}
	}
	if output != "" {
		take(output)
	}
	return least
}

// logFile is a file that lines are appended to.
type logFile struct {
	mu     sync.Mutex
	f      *os.File
	closed bool
}

func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return &logFile{f: f}, nil
}

// Write implements io.Writer. A line for a file that was just closed is lost.
func (f *logFile) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return len(b), nil
	}
	return f.f.Write(b)
}

func (f *logFile) close() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return f.f.Close()
}
