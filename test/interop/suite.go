package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// setupLimit bounds a client's setup: it may have to fetch and to compile.
const setupLimit = 15 * time.Minute

// setupAbsent is what a setup exits with when the language is not to be had.
const setupAbsent = 3

// suite plays clients' stories and keeps what became of them.
type suite struct {
	out     io.Writer
	options options
	broker  *broker
	clients []client
	restart *restarter

	mu      sync.Mutex // guards out and results
	results map[cell]result
}

// run sets the clients up, plays those stories that can be played side by side as soon
// as their client is set up, and in the end, one by one, those that restart the broker.
func (s *suite) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "interop-restart-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if s.restart, err = newRestarter(ctx, s.broker, dir); err != nil {
		return err
	}
	defer s.restart.close()

	// Setups compile, stories mostly wait: neither waits for a place of the other.
	var wg sync.WaitGroup
	settingUp := make(chan struct{}, s.options.parallel)
	playing := make(chan struct{}, s.options.parallel)
	for _, c := range s.clients {
		settingUp <- struct{}{}
		wg.Go(func() {
			s.setUp(ctx, c)
			<-settingUp
			for _, st := range c.stories {
				if st.alone {
					continue
				}
				playing <- struct{}{}
				wg.Go(func() {
					s.play(ctx, c, st)
					<-playing
				})
			}
		})
	}
	wg.Wait()
	s.restart.allowed.Store(true)
	for _, c := range s.clients {
		for _, st := range c.stories {
			if st.alone {
				s.play(ctx, c, st)
			}
		}
	}
	return ctx.Err()
}

// setUp runs a client's setup; if it fails, so do all of its cells.
func (s *suite) setUp(ctx context.Context, c client) {
	if ctx.Err() != nil {
		return
	}
	began := time.Now()
	output, err := execute(ctx, setupLimit, c, nil, "setup")
	if err == nil {
		s.printf("%-7s %s, %s\n", "set up", c.name, time.Since(began).Round(time.Second))
		return
	}
	became := failed
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == setupAbsent {
		became = absent
	}
	s.printf("%-7s setup of %s: %v\n%s", became, c.name, err, indented(output))
	for _, st := range c.stories {
		s.record(cell{c.name, st.name}, became)
	}
}

// play plays one story in a virtual host of its own.
func (s *suite) play(ctx context.Context, c client, st story) {
	at := cell{c.name, st.name}
	if ctx.Err() != nil || s.has(at) { // its setup failed
		return
	}
	if st.ours && s.broker.kind != bartleby {
		s.record(at, ours)
		return
	}
	began := time.Now()
	output, err := s.inVhost(ctx, c, st)
	became := passed
	if err != nil {
		became = failed
	}
	s.record(at, became)
	s.printf("%-7s %s/%s, %.1f s\n", became, c.name, st.name, time.Since(began).Seconds())
	if err != nil {
		s.printf("%s", indented(fmt.Sprintf("%v\n%s", err, output)))
	} else if s.options.verbose {
		s.printf("%s", indented(output))
	}
}

func (s *suite) inVhost(ctx context.Context, c client, st story) (output string, err error) {
	vhost := "interop-" + c.name + "-" + st.name
	if err := s.broker.makeVhost(ctx, vhost); err != nil {
		return "", err
	}
	output, err = execute(ctx, s.options.limit, c, s.environment(vhost), "run", st.name)
	s.restart.wait()
	return output, errors.Join(err, s.broker.deleteVhost(ctx, vhost))
}

// environment is what a story knows of its broker.
func (s *suite) environment(vhost string) []string {
	return []string{
		"AMQP_URI=" + s.broker.amqp.JoinPath(vhost).String(),
		"AMQP_HOST=" + s.broker.amqp.Hostname(),
		"AMQP_PORT=" + s.broker.amqp.Port(),
		"AMQP_VHOST=" + vhost,
		"HTTP_URI=" + strings.TrimSuffix(s.broker.http.String(), "/"),
		"INTEROP_BROKER=" + s.broker.kind,
		"INTEROP_RESTART=" + s.restart.script,
	}
}

func (s *suite) record(at cell, r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[at] = r
}

func (s *suite) has(at cell) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.results[at]
	return ok
}

func (s *suite) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format, args...)
}

// indented sets text off from the lines around it.
func indented(text string) string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
