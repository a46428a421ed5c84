// Package bartleby is a message broker inside a Go program or a test: RabbitMQ's
// protocol, management API and metrics at ports of this process. It is the one package
// for others; the command beside it, cmd/bartleby, is the same broker as a program.
//
// A Broker owns its listeners, its goroutines and its data directory, and gives all of
// them up when it stops. There is nothing else: no signal handlers, no flags, no
// environment, no default loggers or registries, so that any number of brokers may run
// in one process. The memory watermark is that of the process.
//
// Without a directory everything is in memory and gone when the broker stops.
//
// A bug of the broker ends the whole program, at once and with the code 2, after a line to
// the Logger or else to the standard error: a panic that may have left a lock held, or a
// queue half changed, is not recovered from. One that concerns a single connection ends
// that connection only. With a directory, the broker recovers when it starts again.
package bartleby

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/safety/bug"
	"bartleby.mq/internal/server"
)

// Options say what to start. The zero value is a broker in memory, at free ports of
// loopback, with the user guest, whose password is guest.
type Options struct {
	// Dir is the data directory, made if it is not there; one broker uses it at a time.
	// "" keeps everything in memory.
	Dir string

	// AMQP, HTTP and Prometheus are HOST:PORT to listen at; AMQP may name several, with
	// commas between. "" is what Config says, else a free port of 127.0.0.1; "none" is
	// nowhere. Listeners with TLS are for Config to name.
	AMQP, HTTP, Prometheus string

	// Config is text in the form of rabbitmq.conf. A key that nobody knows is an error.
	Config string

	// Definitions is what a broker exported, as JSON, and is imported at the start.
	Definitions []byte

	// Logger gets the node's log lines; nil: none.
	Logger *slog.Logger
}

// Broker is a broker that runs. Its methods may be called by any number of goroutines.
type Broker struct {
	server *server.Server
	config config.Config
	quit   context.CancelFunc // begins the end
	done   chan struct{}      // closed when everything has ended

	mu  sync.Mutex // guards err
	err error
}

// inMemory is the name of the data directory in a file system of its own.
const inMemory = "data"

// Start starts a broker, which serves clients when Start returns. It stops when Stop is
// called, or ctx ends, or somebody stops it through the management API.
func Start(ctx context.Context, o Options) (*Broker, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	conf, err := readConfig(o)
	if err != nil {
		return nil, err
	}
	b := &Broker{config: conf, done: make(chan struct{})}
	ctx, b.quit = context.WithCancel(ctx)
	http, https := conf.ManagementAddresses(address(o.HTTP))
	options := server.Options{
		DataDir: o.Dir, Config: conf, Definitions: o.Definitions, Version: version(), Logger: o.Logger,
		AMQP: conf.AMQPAddresses(address(o.AMQP)), AMQPS: conf.AMQPS,
		HTTP: http, HTTPS: https,
		Prometheus: conf.Prometheus.Plain(conf.PrometheusTLS, address(o.Prometheus)), PrometheusHTTPS: conf.PrometheusTLS.SecureAddress(":15691"),
		WebAMQP: conf.WebAMQPAddress(), WebAMQPS: conf.WebAMQPTLS.SecureAddress(":15677"),
		OnFatal: b.fail, OnStop: b.quit,
	}
	if o.Dir == "" {
		options.DataDir, options.FS = inMemory, vfs.NewMem()
	}
	if b.server, err = server.Start(options); err != nil {
		b.quit()
		return nil, fmt.Errorf("bartleby: %w", err)
	}
	context.AfterFunc(ctx, bug.Guarded(o.Logger, "the end of a broker", b.end))
	return b, nil
}

// Stop ends the broker in order: clients are told, what is durable is on disk, and no
// goroutine is left when it returns. It may be called again, and returns the same.
func (b *Broker) Stop() error {
	b.quit()
	<-b.done
	return b.Err()
}

// Done is closed when the broker has ended, for whatever reason.
func (b *Broker) Done() <-chan struct{} { return b.done }

// Err is what went wrong: the disk failed, which stops the broker, or the end was not in
// order. nil while all is well.
func (b *Broker) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// end is called once, in a goroutine of its own, when the broker's context ends.
func (b *Broker) end() {
	b.note(b.server.Stop())
	close(b.done)
}

// fail is called when the disk has failed.
func (b *Broker) fail(err error) {
	b.note(err)
	b.quit()
}

func (b *Broker) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = errors.Join(b.err, err)
}

// readConfig makes a configuration of the text. The environment is not looked at, not
// even for variables in the text: a broker in a program is what the program says.
func readConfig(o Options) (config.Config, error) {
	conf := config.Default()
	warnings, err := config.ParseFiles(&conf, func(string) string { return "" }, config.File{Name: "Options.Config", Text: o.Config})
	if err == nil {
		err = conf.Check()
	}
	if err != nil {
		return conf, fmt.Errorf("bartleby: configuration: %w", err)
	}
	for _, w := range warnings {
		o.Logger.Warn("configuration setting has no effect", "line", w.Line, "key", w.Key, "reason", w.Text)
	}
	return conf, nil
}

// address is what an option says of a listener.
func address(option string) config.Address {
	if option == "" {
		return config.Address{Value: "127.0.0.1:0"}
	}
	return config.Address{Value: option, Said: true}
}
