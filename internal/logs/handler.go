package logs

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
)

// handler is the slog.Handler of our loggers. It follows the configuration: after a change it
// applies the calls of WithAttrs and WithGroup again to the new outputs.
type handler struct {
	logs     *Logs
	category string
	audit    bool
	with     []func(slog.Handler) slog.Handler
	made     atomic.Pointer[made]
}

// made holds the handlers that with made for a state.
type made struct {
	of       *state
	handlers []slog.Handler // one an output
	audit    slog.Handler   // nil: none
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	now := h.logs.current.Load()
	if h.audit && now.audit != nil {
		return true
	}
	for _, o := range now.outputs {
		if level >= o.levels[h.category] {
			return true
		}
	}
	return false
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	m := h.make()
	if h.audit && m.audit != nil {
		return m.audit.Handle(ctx, r)
	}
	var failed error
	for i, o := range m.of.outputs {
		if r.Level >= o.levels[h.category] {
			failed = errors.Join(failed, m.handlers[i].Handle(ctx, r))
		}
	}
	return failed
}

func (h *handler) make() *made {
	now := h.logs.current.Load()
	if m := h.made.Load(); m != nil && m.of == now {
		return m
	}
	m := &made{of: now}
	apply := func(to slog.Handler) slog.Handler {
		for _, f := range h.with {
			to = f(to)
		}
		return to
	}
	for _, o := range now.outputs {
		m.handlers = append(m.handlers, apply(o.handler))
	}
	if now.audit != nil {
		m.audit = apply(now.audit)
	}
	h.made.Store(m)
	return m
}

func (h *handler) and(f func(slog.Handler) slog.Handler) slog.Handler {
	with := append(h.with[:len(h.with):len(h.with)], f)
	return &handler{logs: h.logs, category: h.category, audit: h.audit, with: with}
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.and(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.and(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}
