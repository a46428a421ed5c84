package server

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
)

// maxLogged is how many bytes of one value a log line has. Clients choose the length of paths,
// names and headers, even before they have logged in.
const maxLogged = 1024

// shortLines is a handler that shortens values to maxLogged. Every logger of a node has it, so
// that code that logs need not care.
type shortLines struct{ slog.Handler }

func short(l *slog.Logger) *slog.Logger { return slog.New(shortLines{l.Handler()}) }

// Handle implements slog.Handler.
func (h shortLines) Handle(ctx context.Context, r slog.Record) error {
	cut := slog.NewRecord(r.Time, r.Level, shortText(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		cut.AddAttrs(shortAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, cut)
}

// WithAttrs implements slog.Handler.
func (h shortLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return shortLines{h.Handler.WithAttrs(shortAttrs(attrs))}
}

// WithGroup implements slog.Handler.
func (h shortLines) WithGroup(name string) slog.Handler {
	return shortLines{h.Handler.WithGroup(name)}
}

func shortAttrs(attrs []slog.Attr) []slog.Attr {
	cut := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		cut = append(cut, shortAttr(a))
	}
	return cut
}

func shortAttr(a slog.Attr) slog.Attr {
	if a.Key == "stack" { // it is the program's own, not a client's
		return a
	}
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(shortText(v.String()))
	case slog.KindGroup:
		v = slog.GroupValue(shortAttrs(v.Group())...)
	case slog.KindAny:
		if text := fmt.Sprint(v.Any()); len(text) > maxLogged {
			v = slog.StringValue(shortText(text))
		}
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// shortText shortens a text and says how much is missing.
func shortText(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	return strings.ToValidUTF8(s[:maxLogged], "") + "… (" + strconv.Itoa(len(s)) + " bytes)"
}
