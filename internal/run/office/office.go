package office

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/share"
	"bartleby.mq/internal/safety/bug"
)

// Options configure an Office. Broker, which serves, is required; the zero value of every other field is a usable default.
type Options struct {
	Broker *broker.Broker
	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now
	// CatalogueBytes is how much memory the catalogues may take; 0: 128 MiB. The catalogue of one queue may take more.
	CatalogueBytes int64
	// Names are headers that tell of causes besides those that are known.
	Names *letter.Names
	// LintAfter is how long after a declaration its queue is examined; 0: 10 s. Clients declare a queue before what it leads to.
	LintAfter time.Duration
	// WebhooksLocal lets webhooks reach addresses of this machine and its link; Version is the program's, for their header User-Agent.
	WebhooksLocal bool
	Version       string
	Failpoint     func(name string) // for tests: see JobFailpoints

	queues func() int64 // for tests: the clock of queues, if it is another than Now
	idle   bool         // for tests: no goroutine watches arrivals, the test calls Rules.watch.step
	timeUp func() bool  // for tests: says in place of the clock whether the time of a look at letters is up
}

const defaultCatalogueBytes = 128 << 20

// Office is the Dead Letter Office of a node. Any number of goroutines may use it.
type Office struct {
	// Static after construction.
	Options
	Drops    *Drops
	Jobs     *Jobs
	Webhooks *Webhooks
	Rules    *Rules
	b        *broker.Broker
	deaths   func() int64 // the clock that letters died by, see broker.Now
	life     context.Context
	end      context.CancelFunc
	work     sync.WaitGroup       // goroutines that read catalogues
	looks    *share.Turns[string] // who may look at letters: users who search, virtual hosts whose catalogues are read

	catalogues catalogues
	notes      notes
	audit      *Audit
	masks      *Masks
}

// New opens the office of a broker, with its ledger of drops, and goes on with its jobs. Close ends it.
func New(o Options) (_ *Office, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	deaths := o.Broker.Now
	if o.Now == nil {
		o.Now = time.Now
	} else {
		deaths = func() int64 { return o.Now().UnixMilli() }
	}
	if o.queues != nil {
		deaths = o.queues
	}
	if o.Failpoint == nil {
		o.Failpoint = func(string) {}
	}
	if o.CatalogueBytes == 0 {
		o.CatalogueBytes = defaultCatalogueBytes
	}
	f := &Office{Options: o, b: o.Broker, deaths: deaths, looks: share.NewTurns[string](max(1, runtime.GOMAXPROCS(0)/2))}
	f.life, f.end = context.WithCancel(context.Background())
	if f.LintAfter == 0 {
		f.LintAfter = defaultLintAfter
	}
	f.catalogues.of, f.catalogues.looked = map[uint64]*catalogue{}, map[uint64]uint64{}
	if err = f.loadNotes(); err == nil {
		f.masks, err = openMasks(f.b, f.Logger)
	}
	if err == nil {
		f.audit, err = openAudit(f.b, f.Logger, o.Now)
	}
	if err == nil {
		f.Drops, err = openDrops(o.Broker, o.Logger, o.Now)
	}
	if err == nil {
		f.Jobs, err = newJobs(f)
	}
	if err == nil {
		f.Webhooks, err = openWebhooks(f)
	}
	if err == nil {
		f.Rules, err = newRules(f)
	}
	if err == nil {
		f.b.OnVHostEnd(f.audit.endVHost) // behind all others, who may tell the audit what they end
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if !f.b.Strict { // RabbitMQ says nothing
		declared := letters.WatchDeclared(f.b)
		f.work.Go(bug.Guarded(f.Logger, "the examination of declarations", func() { f.watchDeclared(declared) }))
	}
	return f, nil
}

// Record writes to the audit what somebody did.
func (f *Office) Record(act Act) { f.audit.Record(act) }

// Audit is who did what.
func (f *Office) Audit() *Audit { return f.audit }

// Close waits until nothing of the office looks into queues, and writes what is not stored. It is called before the broker is closed.
// REQUIRES: no request uses the office any longer.
func (f *Office) Close() {
	if f.Rules != nil {
		f.Rules.Close()
	}
	if f.Jobs != nil {
		f.Jobs.Close()
	}
	if f.Webhooks != nil {
		f.Webhooks.Close()
	}
	f.end()
	f.work.Wait()
	if f.Drops != nil {
		f.Drops.Close()
	}
}

// now is milliseconds since 1970.
func (f *Office) now() int64 { return f.Now().UnixMilli() }
