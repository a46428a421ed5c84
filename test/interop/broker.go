package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The kinds of broker, as stories see them in INTEROP_BROKER.
const (
	bartleby = "bartleby"
	rabbitmq = "rabbitmq"
)

// serveTimeout bounds how long a broker may take until it serves.
const serveTimeout = 90 * time.Second

// broker is what the stories are played against.
type broker struct {
	kind string   // bartleby or rabbitmq
	amqp *url.URL // without virtual host
	http *url.URL // of the management API

	restartCommand []string // kills it and starts it again; empty if it cannot be
	stopCommand    []string // empty if it is not ours to stop
	dir            string   // of a broker that was started; removed at the end
}

// openBroker starts Bartleby on free ports with an empty data directory, or takes the
// broker that the options name.
func openBroker(ctx context.Context, o options) (b *broker, err error) {
	if o.amqp != "" {
		b = &broker{kind: rabbitmq}
		if b.amqp, err = url.Parse(o.amqp); err == nil {
			b.http, err = url.Parse(o.http)
		}
		if err != nil {
			return nil, err
		}
		if b.amqp.User == nil || b.amqp.Port() == "" || b.http.Host == "" {
			return nil, errors.New("-amqp needs user, password and port, and -http a URL")
		}
		if o.restart != "" {
			b.restartCommand = []string{"sh", "-c", o.restart}
		}
		return b, b.serves(ctx)
	}
	script, err := filepath.Abs("scripts/node")
	if err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(o.bartleby)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		return nil, err
	}
	b = &broker{kind: bartleby, dir: dir, restartCommand: []string{script, "crash", dir}, stopCommand: []string{script, "stop", dir}}
	if err = command(ctx, script, "start", dir, bin); err == nil {
		err = b.readAddresses()
	}
	if err == nil {
		err = b.serves(ctx)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// readAddresses takes the broker's addresses from what scripts/node has written.
func (b *broker) readAddresses() error {
	text, err := os.ReadFile(filepath.Join(b.dir, "urls"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, address, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "AMQP":
			b.amqp = &url.URL{Scheme: "amqp", User: url.UserPassword("guest", "guest"), Host: address}
		case "HTTP":
			b.http = &url.URL{Scheme: "http", Host: address}
		}
	}
	if b.amqp == nil || b.http == nil {
		return fmt.Errorf("%s/urls lacks an address: %q", b.dir, text)
	}
	return nil
}

// serves waits until AMQP connections are taken and the management API answers.
func (b *broker) serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serveTimeout)
	defer cancel()
	for {
		err := b.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the broker at %s does not serve: %w", b.amqp.Host, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *broker) probe(ctx context.Context) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.amqp.Host)
	if err != nil {
		return err
	}
	_ = c.Close()
	return b.call(ctx, http.MethodGet, "/api/overview", "")
}

// restart kills the broker and returns when it serves again.
func (b *broker) restart(ctx context.Context) error {
	if len(b.restartCommand) == 0 {
		return errors.New("nobody said how to restart the broker: -restart")
	}
	if err := command(ctx, b.restartCommand...); err != nil {
		return err
	}
	return b.serves(ctx)
}

// close stops a broker that openBroker started and removes its files.
func (b *broker) close() {
	if len(b.stopCommand) > 0 {
		// Whoever ended the run must not keep us from this: it has no context.
		if err := command(context.Background(), b.stopCommand...); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
		}
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// call asks the management API and takes every answer but 2xx for an error.
func (b *broker) call(ctx context.Context, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(b.http.String(), "/")+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	password, _ := b.amqp.User.Password()
	req.SetBasicAuth(b.amqp.User.Username(), password)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return nil
}

// command runs a command; its error has what the command said.
func command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second // a broker left behind may hold the pipe
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
