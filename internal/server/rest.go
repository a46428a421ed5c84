package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"bartleby.mq/internal/controlsocket"
	"bartleby.mq/internal/edge/api"
	"bartleby.mq/internal/safety/bug"
)

// Stopped is a node whose application was stopped (rabbitmqctl stop_app): all listeners are closed and everything is on disk, but the
// process stays and holds the data directory, so no other node starts on it. The control socket alone is open, for whoever starts the
// application again. RabbitMQ's Erlang VM does the same.
type Stopped struct {
	options Options
	lock    *dirLock
}

// StopApp stops the node as Stop does, but keeps its data directory. The caller calls Wait, and then Start or Close. After an error
// the directory is released, but if requests go on that use it.
func (s *Server) StopApp() (*Stopped, error) {
	defer bug.End(s.Logger, "the stop of the application")
	err := s.halt()
	switch {
	case s.lock == nil:
		return nil, errors.Join(err, errors.New("a node in memory has nothing to start again with"))
	case errors.Is(err, errRequestsLeft):
		return nil, err
	case err != nil:
		return nil, errors.Join(err, s.lock.release())
	}
	markStopped(s.DataDir)
	return &Stopped{s.Options, s.lock}, nil
}

// Wait answers on the control socket until the application is to start, or end is closed, which Options.OnStop may do. Who asks for a start
// for which it is not ready is told why, and the application stays stopped. Several may ask at once.
func (p *Stopped) Wait(end <-chan struct{}, ready func() error) (start bool, err error) {
	l, err := controlsocket.Listen(p.options.DataDir)
	if err != nil {
		return false, fmt.Errorf("nobody can start the application: %w", err)
	}
	asked := make(chan struct{}, 1)
	h := &http.Server{
		Handler: p.handler(asked, ready), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(p.options.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go bug.Guarded(p.options.Logger, "the control socket of a stopped application", func() { served <- h.Serve(l) })()
	select {
	case <-asked:
		start = true
	case <-end:
	case err = <-served:
		return false, fmt.Errorf("nobody can start the application: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if h.Shutdown(ctx) != nil { // the answer to whoever asked is out, or he does not read it
		_ = h.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		p.options.Logger.Warn("the control socket ended with an error", "data_dir", p.options.DataDir, "error", err)
	}
	return start, nil
}

// handler answers what can be asked of a stopped application; it sends to asked when it is to start, and is ready for that.
func (p *Stopped) handler(asked chan<- struct{}, ready func() error) http.Handler {
	m := http.NewServeMux()
	refuse := func(w http.ResponseWriter, kind, reason string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": kind, "reason": reason})
	}
	done := func(do func()) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			do()
			w.WriteHeader(http.StatusNoContent)
		}
	}
	m.HandleFunc("POST /api/control/start-app", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			p.options.Logger.Error("the application is not started, and stays stopped", "error", err)
			refuse(w, "not_ready", "The application stays stopped: "+err.Error())
			return
		}
		select {
		case asked <- struct{}{}:
		default: // somebody has asked already
		}
		w.WriteHeader(http.StatusNoContent)
	})
	m.HandleFunc("POST /api/control/stop-app", done(func() {}))
	m.HandleFunc("POST /api/control/stop", done(func() { p.options.OnStop() }))
	m.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, api.AppStopped, "this command requires the 'rabbit' app to be running on the target node. Start it with 'rabbitmqctl start_app'.")
	})
	return m
}

// Start starts a node on the directory, with the options of a new one.
func (p *Stopped) Start(o Options) (*Server, error) { return start(o, p.lock) }

// Close releases the directory.
func (p *Stopped) Close() error { return p.lock.release() }
