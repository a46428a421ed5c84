package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"bartleby.mq/internal/config"
	"bartleby.mq/internal/logs"
	"bartleby.mq/internal/server"
)

// serverFlags are the flags of "bartleby server". A given flag wins over the
// configuration file, which wins over the default of a flag.
type serverFlags struct {
	dataDir, host, amqp, http, prometheus, config, definitions, logLevel string
	resetClock                                                           bool
}

func serverCommand() *cobra.Command {
	var f serverFlags
	c := &cobra.Command{
		Use: "server", Short: "Run a node", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runServer(c, f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.dataDir, "data-dir", "./data", "directory for all persistent data")
	flags.StringVar(&f.host, "host", defaultHost, "host to listen on where neither the configuration nor a flag below sets an address; any means all interfaces")
	flags.StringVar(&f.amqp, "amqp", "", "HOST:PORT for AMQP, several with commas between, or none (default HOST:5672)")
	flags.StringVar(&f.http, "http", "", "HOST:PORT for the management API, or none (default HOST:15672)")
	flags.StringVar(&f.prometheus, "prometheus", "", "HOST:PORT for metrics, or none (default HOST:15692)")
	flags.StringVar(&f.config, "config", "", "configuration file in the format of rabbitmq.conf, or a directory of such files")
	flags.StringVar(&f.definitions, "definitions", "", "definitions file to import at start")
	flags.BoolVar(&f.resetClock, "reset-clock", false, "set the clock of queues to the system's, once; only after the system's was far ahead, see the page on troubleshooting")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warning, error or none")
	return c
}

func runServer(c *cobra.Command, f serverFlags) error {
	files := findConfig(f.config, os.Getenv)
	said := c.Flags().Changed
	load := func() (config.Config, []config.Warning, error) {
		conf, warnings, err := files.load(os.Getenv)
		if err == nil && said("log-level") {
			if _, _, err = config.LogLevel(f.logLevel); err == nil {
				conf.Log.Console.Level, conf.Log.Categories = f.logLevel, nil
			}
		}
		if said("definitions") {
			conf.Definitions.Files = []string{f.definitions}
		}
		return conf, warnings, err
	}
	conf, warnings, err := load()
	if err != nil {
		return err
	}
	output, err := logs.Open(conf.Log, os.Stdout, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	logger := output.Logger("")
	warn(logger, warnings)

	end := newEnding(logger)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go end.heed(signals) // ends with the process
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	listen := func(name, value, port string) config.Address { return f.address(said(name), value, port) }
	dataDir := f.dataDir
	if dir := config.EnvironmentPaths(os.Getenv).DataDir; dir != "" && !said("data-dir") {
		dataDir = dir
	}
	var rest chan struct{} // gets a value when the application is to stop
	options := func(conf config.Config) server.Options {
		asked := make(chan struct{}, 1)
		rest = asked
		http, https := conf.ManagementAddresses(listen("http", f.http, "15672"))
		return server.Options{
			ResetClock: f.resetClock, DataDir: dataDir, Config: conf, Version: programVersion(),
			Logger: logger, ConnectionLogger: output.Logger("connection"), Audit: output.Audit(),
			AMQP: conf.AMQPAddresses(listen("amqp", f.amqp, "5672")), AMQPS: conf.AMQPS,
			HTTP: http, HTTPS: https,
			Prometheus:      conf.Prometheus.Plain(conf.PrometheusTLS, listen("prometheus", f.prometheus, "15692")),
			PrometheusHTTPS: conf.PrometheusTLS.SecureAddress(":15691"),
			WebAMQP:         conf.WebAMQPAddress(), WebAMQPS: conf.WebAMQPTLS.SecureAddress(":15677"),
			OnFatal: func(error) { os.Exit(1) }, // already logged; there is no point in waiting for a broken disk
			OnStop:  func() { end.ask("API") }, LogLevel: output.Level, SetLogLevel: output.SetLevel,
			OnStopApp: func() {
				select {
				case asked <- struct{}{}:
				default: // it stops already
				}
			},
		}
	}
	s, err := server.Start(options(conf))
	if err != nil {
		return err
	}
	f.resetClock = false // not again after stop_app
	s.SpareThread()
	tellSystemd(logger, "READY=1")
	for {
		s.LimitGoMemory()
		if !serve(end.c, rest, hangups, func() {
			next, warnings, err := load()
			if err == nil {
				warn(logger, warnings)
				err = errors.Join(output.Reload(next.Log), s.Reload(next))
			}
			if err != nil {
				logger.Error("configuration not reloaded", "error", err)
			} else {
				logger.Info("configuration reloaded")
			}
		}) {
			break
		}
		logger.Info("stopping the application, as rabbitmqctl stop_app asks")
		stopped, err := s.StopApp()
		if err != nil {
			return fmt.Errorf("stopping: %w", err)
		}
		logger.Info("the application is stopped: rabbitmqctl start_app starts it")
		start, err := stopped.Wait(end.c, func() error {
			_, _, err := load()
			return err
		})
		if start {
			if conf, warnings, err = load(); err == nil {
				warn(logger, warnings)
				err = output.Reload(conf.Log)
			}
		}
		if !start || err != nil {
			logger.Info("stopped")
			return errors.Join(err, stopped.Close())
		}
		if s, err = stopped.Start(options(conf)); err != nil {
			return err
		}
	}
	tellSystemd(logger, "STOPPING=1")
	if err := s.Stop(); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	logger.Info("stopped")
	return nil
}

// serve returns when the process is to end, or, with true, when its application is to stop. Until then a hangup reloads the
// configuration.
func serve(end, rest <-chan struct{}, hangups <-chan os.Signal, reload func()) (rests bool) {
	for {
		select {
		case <-end:
			return false
		case <-rest:
			return true
		case <-hangups:
			reload()
		}
	}
}

// address returns the address that a flag gives, or the default: --host with the port.
func (f serverFlags) address(said bool, value, port string) config.Address {
	if said {
		return config.Address{Value: value, Said: true}
	}
	host := f.host
	if host == anyHost {
		host = ""
	}
	return config.Address{Value: net.JoinHostPort(host, port)}
}

const (
	defaultHost = "127.0.0.1"
	anyHost     = "any" // all interfaces
)

func warn(logger *slog.Logger, warnings []config.Warning) {
	for _, w := range warnings {
		logger.Warn("configuration setting has no effect", "file", w.File, "line", w.Line, "key", w.Key, "reason", w.Text)
	}
}
