package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/server"
)

// serverFlags are those of "bartleby server". A flag given wins over the
// configuration file, which wins over a flag's default.
type serverFlags struct {
	dataDir, amqp, http, prometheus, config, definitions, logLevel string
}

func serverCommand() *cobra.Command {
	var f serverFlags
	c := &cobra.Command{
		Use: "server", Short: "Run a node", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runServer(c, f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.dataDir, "data-dir", "./data", "directory of everything that outlives the process")
	flags.StringVar(&f.amqp, "amqp", "127.0.0.1:5672", "HOST:PORT for AMQP, several with commas between, or none")
	flags.StringVar(&f.http, "http", "127.0.0.1:15672", "HOST:PORT for the management API, or none")
	flags.StringVar(&f.prometheus, "prometheus", "127.0.0.1:15692", "HOST:PORT for metrics, or none")
	flags.StringVar(&f.config, "config", "", "configuration file, in the form of rabbitmq.conf")
	flags.StringVar(&f.definitions, "definitions", "", "definitions file to import at start")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warning, error or none")
	return c
}

// none turns a listener off.
const none = "none"

func runServer(c *cobra.Command, f serverFlags) error {
	conf, warnings, err := loadConfig(f.config)
	if err != nil {
		return err
	}
	said := c.Flags().Changed
	if said("log-level") {
		conf.Log.Level = f.logLevel
	}
	logger, err := newLogger(conf.Log.Level)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		logger.Warn("configuration", "line", w.Line, "key", w.Key, "warning", w.Text)
	}
	if said("definitions") {
		conf.Definitions = []string{f.definitions}
	}

	// Both signals and the API ask for the same; a second signal does not wait.
	stopc := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopc) })
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	s, err := server.Start(server.Options{
		DataDir: f.dataDir, Config: conf, Version: programVersion(), Logger: logger,
		AMQP:       amqpAddresses(conf.AMQP, f.amqp, said("amqp")),
		HTTP:       address(conf.Management, f.http, said("http")),
		Prometheus: address(conf.Prometheus, f.prometheus, said("prometheus")),
		OnFatal:    func(error) { os.Exit(1) }, // it is logged; waiting for a broken disk helps nobody
		OnStop:     stop,
	})
	if err != nil {
		return err
	}
	select {
	case <-stopc:
		logger.Info("stopping", "asked_by", "API")
	case sig := <-signals:
		logger.Info("stopping", "asked_by", sig.String())
	}
	go func() { // ends with the process
		sig := <-signals
		logger.Warn("stopping at once", "asked_by", sig.String())
		os.Exit(1)
	}()
	if err := s.Stop(); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	logger.Info("stopped")
	return nil
}

// loadConfig reads the file, if there is one, and the environment.
func loadConfig(path string) (config.Config, []config.Warning, error) {
	conf := config.Default()
	config.Environment(&conf, os.Getenv)
	if path == "" {
		return conf, nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return conf, nil, fmt.Errorf("configuration: %w", err)
	}
	warnings, err := config.Parse(&conf, string(text))
	if err != nil {
		return conf, nil, fmt.Errorf("configuration %s:\n%w", path, err)
	}
	return conf, warnings, nil
}

func amqpAddresses(file []string, flag string, said bool) []string {
	if !said && file != nil {
		return file
	}
	if flag == none {
		return nil
	}
	return strings.Split(flag, ",")
}

// address is where an HTTP server is to listen; "" is nowhere.
func address(file config.Listener, flag string, said bool) string {
	if !said && file.Said() {
		return file.Address(flag)
	}
	if flag == none {
		return ""
	}
	return flag
}

// newLogger writes lines for people to standard error.
func newLogger(level string) (*slog.Logger, error) {
	l, on, err := config.LogLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	if !on {
		return slog.New(slog.DiscardHandler), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}
