package office

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/run/broker"
)

// Options configure an Office. Broker is required; the zero value of every other field is a usable default.
type Options struct {
	Broker *broker.Broker
	Logger *slog.Logger
	// CatalogueBytes is how much memory the catalogues may take; 0: 128 MiB. The catalogue of one queue may take more.
	CatalogueBytes int64
	// Names are headers that tell of causes besides those that are known.
	Names *letter.Names
}

const defaultCatalogueBytes = 128 << 20

// Office is the Dead Letter Office of a node. Any number of goroutines may use it.
type Office struct {
	// Static after construction.
	Options
	b    *broker.Broker
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // goroutines that read catalogues
	room chan struct{}  // one for each that may read at a time

	catalogues catalogues
	notes      notes
}

// New opens the office of a broker. Close ends it.
func New(o Options) (*Office, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CatalogueBytes == 0 {
		o.CatalogueBytes = defaultCatalogueBytes
	}
	f := &Office{Options: o, b: o.Broker, room: make(chan struct{}, runtime.GOMAXPROCS(0))}
	f.life, f.end = context.WithCancel(context.Background())
	f.catalogues.of, f.catalogues.looked = map[uint64]*catalogue{}, map[uint64]uint64{}
	if err := f.loadNotes(); err != nil {
		f.end()
		return nil, err
	}
	return f, nil
}

// Close waits until nothing of the office looks into queues. REQUIRES: no request uses it any longer.
func (f *Office) Close() {
	f.end()
	f.work.Wait()
}

func now() int64 { return time.Now().UnixMilli() }
