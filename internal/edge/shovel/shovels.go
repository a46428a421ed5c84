package shovel

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bartleby.mq/internal/core/declare"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/safety/bug"
)

// Options are the dependencies of Shovels. All are required.
type Options struct {
	Broker      *broker.Broker
	Logger      *slog.Logger
	ClusterName func() string // what x-shovelled says has moved a message
}

// Shovels runs the shovels of a node's parameters. Any number of goroutines may use
// it.
type Shovels struct {
	Options
	ctx  context.Context
	stop context.CancelFunc

	patience time.Duration // of peers, see worker; guarded by changing

	changing sync.Mutex     // held while workers are started and stopped
	changes  sync.WaitGroup // goroutines that do so

	ahead atomic.Bool // a goroutine is about to look for changes

	mu      sync.Mutex // guards workers
	workers map[shovelName]*worker
}

type shovelName struct {
	vhost message.VHost
	name  string
}

// described is the shovel of a parameter.
type described struct {
	topology.Parameter
	setter broker.Setter
}

// Start runs the shovels of the existing parameters, and follows changes of parameters
// until Stop.
func Start(o Options) *Shovels {
	s := &Shovels{Options: o, workers: map[shovelName]*worker{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	o.Broker.HandleParameters(Component, s)
	s.Changed()
	return s
}

// Stop ends all shovels and waits for them.
func (s *Shovels) Stop() {
	s.stop()
	s.changes.Wait()
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	list := s.workers
	s.workers = map[shovelName]*worker{}
	s.mu.Unlock()
	for _, w := range list {
		<-w.done
	}
}

// Check implements broker.ParameterHandler.
func (s *Shovels) Check(p topology.Parameter, by broker.Setter) error {
	value, err := topology.ParseJSON(p.Value)
	if err != nil {
		return topology.Refuse(topology.Invalid, "Validation failed\n\nnot_json\n")
	}
	d, complaints := parse(p.Name, value)
	if complaints == nil {
		complaints = d.forbidden(s.Broker.LoopbackUsers, by)
	}
	if complaints != nil {
		return topology.Refuse(topology.Invalid, "Validation failed\n\n%s\n", strings.Join(complaints, "\n"))
	}
	return nil
}

// Changed implements broker.ParameterHandler: it stops shovels that are deleted, have changed or
// are no longer permitted, and starts new ones.
func (s *Shovels) Changed() {
	if s.ctx.Err() != nil || s.ahead.Swap(true) {
		return
	}
	s.changes.Go(bug.Guarded(s.Logger, "changes of shovels", func() { // so that a worker may delete its own parameter
		s.changing.Lock()
		defer s.changing.Unlock()
		s.ahead.Store(false)
		s.reconcile()
		s.recheck()
	}))
}

// reconcile starts and stops workers so that they match the parameters. REQUIRES: changing is held.
func (s *Shovels) reconcile() {
	if s.ctx.Err() != nil {
		return
	}
	wanted := map[shovelName]described{}
	s.Broker.Read(func(state *topology.State, users *auth.Users) {
		for _, v := range state.VHosts() {
			for _, p := range v.Parameters(Component) {
				wanted[shovelName{v.Name, p.Name}] = described{p, s.Broker.Setter(p, users)}
			}
		}
	})
	s.mu.Lock()
	var old []*worker
	for name, w := range s.workers {
		if d, ok := wanted[name]; !ok || w.value != string(d.Value) || !w.setter.Same(d.setter) {
			old = append(old, w)
			delete(s.workers, name)
		}
	}
	s.mu.Unlock()
	for _, w := range old {
		w.stop()
	}
	for _, w := range old {
		<-w.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range wanted {
		if s.workers[name] == nil {
			if w := s.newWorker(name, d); w != nil {
				s.workers[name] = w
			}
		}
	}
}

// recheck interrupts the shovels that are no longer permitted.
func (s *Shovels) recheck() {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.workers))
	s.mu.Unlock()
	for _, w := range list {
		if err := w.permitted(); err != nil {
			w.interrupt(err)
		}
	}
}

func (s *Shovels) newWorker(name shovelName, p described) *worker {
	log := s.Logger.With("vhost", string(name.vhost), "shovel", name.name)
	v, err := topology.ParseJSON(p.Value)
	if err != nil {
		log.Error("cannot read a stored shovel", "error", err)
		return nil
	}
	d, complaints := parse(name.name, v)
	if complaints != nil {
		log.Error("cannot read a stored shovel", "error", strings.Join(complaints, "; "))
		return nil
	}
	w := &worker{
		b: s.Broker, log: log, vhost: name.vhost, name: name.name, value: string(p.Value), setter: p.setter, definition: d,
		clusterName: s.ClusterName, finished: s.finished, patience: s.patience, done: make(chan struct{}), status: status{state: starting},
	}
	ctx, cancel := context.WithCancel(s.ctx)
	w.stop = cancel
	go bug.Guarded(log, "a shovel", func() { w.run(ctx) })() // ends with Stop or with the parameter, and is waited for by either
	return w
}

// finished deletes the parameter of a shovel that has moved all its messages, unless it was set
// again meanwhile.
func (s *Shovels) finished(w *worker) {
	c := declare.DeleteParameter{VHost: w.vhost, Component: Component, Name: w.name, Value: json.RawMessage(w.value)}
	if _, err := s.Broker.By("").Do(c); err != nil {
		w.log.Warn("cannot delete the parameter of a finished shovel", "error", err)
	}
}

// Restart stops a shovel and starts it again; it says whether there is one.
func (s *Shovels) Restart(vhost message.VHost, name string) bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	key := shovelName{vhost, name}
	s.mu.Lock()
	w := s.workers[key]
	delete(s.workers, key)
	s.mu.Unlock()
	if w == nil {
		return false
	}
	w.stop()
	<-w.done
	s.reconcile()
	return true
}

// Shown returns the shovels as the management API shows them, by virtual host and name, for the virtual hosts
// for which sees is true.
func (s *Shovels) Shown(sees func(message.VHost) bool) []map[string]any {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.workers))
	s.mu.Unlock()
	list = slices.DeleteFunc(list, func(w *worker) bool { return !sees(w.vhost) })
	slices.SortFunc(list, func(a, b *worker) int {
		if c := strings.Compare(string(a.vhost), string(b.vhost)); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	shown := make([]map[string]any, len(list))
	for i, w := range list {
		shown[i] = w.show()
	}
	return shown
}

// show is the object of one shovel.
func (w *worker) show() map[string]any {
	st := w.shown()
	object := map[string]any{
		"node": w.b.NodeName, "name": w.name, "vhost": string(w.vhost), "type": "dynamic", "state": string(st.state),
		"timestamp": timeShown(st.since),
	}
	w.showEnds(object, &st)
	waiting := st.waiting(time.Now())
	switch {
	case st.state == terminated && st.triedEvery > 0:
		object["reason"] = fmt.Sprintf("%s; tried again every %s", st.reason, st.triedEvery)
	case st.state == terminated:
		object["reason"] = st.reason
	case waiting != "": // RabbitMQ gives no reason here
		object["reason"] = waiting
	}
	if st.state != running {
		return object
	}
	object["forwarded"], object["pending"] = st.forwarded, st.pending
	object["remaining"], object["remaining_unacked"] = "unlimited", "unlimited"
	if st.remaining >= 0 {
		object["remaining"], object["remaining_unacked"] = st.remaining, st.remaining
	}
	object["blocked_status"] = "running"
	switch {
	case st.blocked:
		object["blocked_status"] = "blocked"
	case waiting != "":
		object["blocked_status"] = "flow"
	}
	return object
}

func timeShown(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// showEnds adds source and destination, also while there is no connection.
func (w *worker) showEnds(object map[string]any, st *status) {
	d := &w.definition
	object["src_protocol"], object["dest_protocol"] = "amqp091", "amqp091"
	object["src_uri"], object["dest_uri"] = cmp.Or(st.from.shown, d.source.uris[0].shown), cmp.Or(st.to.shown, d.dest.uris[0].shown)
	for key, value := range map[string]string{
		"src_queue": d.source.queue, "src_exchange": d.source.exchange, "src_exchange_key": d.source.key,
		"dest_queue": d.dest.queue, "dest_exchange": d.dest.exchange, "dest_exchange_key": d.dest.key,
	} {
		if value != "" {
			object[key] = value
		}
	}
}
