package office

import (
	"context"
	"time"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/lint"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/letters"
)

const defaultLintAfter = 10 * time.Second

// maxLinted is how many findings are remembered, so that each is logged once. Beyond that none is.
const maxLinted = 1000

// Lint examines the declarations of virtual hosts; vhost says whether one is meant.
func (f *Office) Lint(ctx context.Context, vhost func(*topology.VHost) bool) ([]lint.Finding, error) {
	var names []message.VHost
	f.b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			if vhost(v) {
				names = append(names, v.Name)
			}
		}
	})
	all := []lint.Finding{}
	for _, name := range names {
		found, err := letters.Lint(ctx, f.b, name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Map draws the ways of dead letters in a virtual host, with what is known of the letters. It reads no queue.
func (f *Office) Map(ctx context.Context, vhost message.VHost) (lint.Map, error) {
	m, queues, err := letters.DeadLetterMap(ctx, f.b, vhost)
	if err != nil {
		return m, err
	}
	for i := range m.Nodes {
		n := &m.Nodes[i]
		q, ok := queues[n.Queue]
		if !ok {
			continue
		}
		c := f.b.Counts(q)
		n.Messages = new(c.Ready + c.Out + c.Delayed + c.Dying + c.Held + c.Offered)
		f.catalogues.mu.Lock()
		known := f.catalogues.of[q.Incarnation()]
		f.catalogues.mu.Unlock()
		if known == nil {
			continue
		}
		known.mu.Lock()
		if known.made {
			n.Letters = new(known.letters())
		}
		known.mu.Unlock()
	}
	return m, nil
}

// watchDeclared logs what loses the dead letters of queues that were declared, or got another policy, a while ago. It ends with the office.
func (f *Office) watchDeclared(declared *letters.Declared) {
	told := map[lint.Finding]bool{}
	for {
		select {
		case <-declared.Wake():
		case <-f.life.Done():
			return
		}
		if pause(f.life, f.LintAfter); f.life.Err() != nil {
			return
		}
		for vhost, queues := range declared.Take() {
			found, err := letters.Lint(f.life, f.b, vhost, queues...)
			if err != nil {
				return // the office ends
			}
			for _, l := range found {
				if l.Severity != lint.Error || told[l] || len(told) >= maxLinted {
					continue
				}
				told[l] = true
				f.Logger.Warn("Dead letters will lead nowhere. This is logged once", "vhost", string(vhost), l.Kind, l.Name, "rule", l.Rule, "finding", l.Text, "mend", l.Mend)
			}
		}
	}
}
