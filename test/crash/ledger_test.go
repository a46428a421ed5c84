package crash

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// fate is what a publisher knows of a message.
type fate uint8

const (
	sent      fate = iota // no answer has come
	confirmed             // acked, or its transaction is committed
	refused               // nacked
)

// known is all that the clients know of a message.
type known struct {
	id        string
	publisher string
	seq       int
	fate      fate
	tx        int // messages with the same number, unless 0, were published in one transaction
	lines     []string

	acked     []string // lines on which a consumer has sent an ack
	rejects   int      // how often a consumer has sent a reject or a nack
	delivered int      // how often a consumer has seen it

	found []place // by the audit
}

// place is one queue in which the audit found a message.
type place struct {
	queue  string
	deaths map[string]int64 // counts by "queue/reason"
	latest string           // "queue/reason" of the last death
	fault  string           // something is wrong with its content
}

// ledger holds what the clients of a life know. Its methods may be called from
// any goroutine.
type ledger struct {
	mu       sync.Mutex
	messages map[string]*known
	audited  map[string]bool // ids that an audit has taken out of the broker
	faults   []string
	kills    int // since the last audit
	// unread says that a read has failed since the last audit: a dead message whose
	// record could not be read lets others pass, until it can.
	unread bool
}

func newLedger() *ledger {
	return &ledger{messages: map[string]*known{}, audited: map[string]bool{}}
}

// noteFault notes which operation on a file a server is to fail in.
func (l *ledger) noteFault(fault string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unread = l.unread || strings.HasPrefix(fault, "read:")
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// note runs f on what is known of the message, if it is one of this ledger's.
func (l *ledger) note(id string, f func(*known)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.messages[id]; m != nil {
		f(m)
	}
}

func (l *ledger) add(m *known) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages[m.id] = m
}

// missing counts the copies that an audit still has to find.
func (l *ledger) missing(s *scenario) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.messages {
		if m.fate != confirmed {
			continue
		}
		covered := coverage(s, m)
		for _, line := range m.lines {
			if covered[line] == 0 && !slices.Contains(m.acked, line) {
				n++
			}
		}
	}
	return n
}

// coverage counts how often each line of a message is covered by what was found.
func coverage(s *scenario, m *known) map[string]int {
	n := map[string]int{}
	for _, c := range m.found {
		for _, line := range s.covers(c.queue) {
			n[line]++
		}
	}
	return n
}

// settle judges each message by what the audit has found and forgets it. oneLog
// says that all queues are in one log: a publish is there whole then, or not at
// all, even if nobody was told that it is safe.
func (l *ledger) settle(s *scenario, oneLog bool) (faults []string, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	faults = l.faults
	transactions := map[int]*known{}
	for _, m := range l.messages {
		count++
		for _, f := range judge(s, m, l.kills, oneLog) {
			faults = append(faults, fmt.Sprintf("%s (fate %d, acked %v, rejects %d, delivered %d, found %v): %s", m.id, m.fate, m.acked, m.rejects, m.delivered, m.found, f))
		}
		if oneLog && m.tx != 0 && len(m.acked) == 0 {
			if other := transactions[m.tx]; other != nil && (len(other.found) == 0) != (len(m.found) == 0) {
				faults = append(faults, fmt.Sprintf("half a transaction: %s is at %v, %s at %v", m.id, m.found, other.id, other.found))
			}
			transactions[m.tx] = m
		}
		l.audited[m.id] = true
	}
	clear(l.messages)
	l.faults, l.kills, l.unread = nil, 0, false
	slices.Sort(faults)
	return faults, count
}

// judge says what is wrong with the places a message was found in.
func judge(s *scenario, m *known, kills int, oneLog bool) (faults []string) {
	covered := coverage(s, m)
	total := 0
	for _, line := range m.lines {
		n := covered[line]
		total += n
		switch {
		case n > 1:
			faults = append(faults, fmt.Sprintf("in %d places on line %s", n, line))
		case n == 0 && m.fate == confirmed && !slices.Contains(m.acked, line):
			faults = append(faults, "lost on line "+line)
		case n == 1 && m.fate == refused:
			faults = append(faults, "refused, and there")
		}
	}
	// One frame for all targets of a publish: no line without the others.
	if oneLog && m.fate == sent && total > 0 && total < len(m.lines) && len(m.acked) == 0 {
		faults = append(faults, fmt.Sprintf("only some of its %d lines are there", len(m.lines)))
	}
	for _, c := range m.found {
		if c.fault != "" {
			faults = append(faults, c.fault)
		}
		if s.history == nil {
			continue
		}
		if err := s.history(m, c, kills); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}
