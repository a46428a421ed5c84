package partition

import (
	"fmt"
	"strings"
	"testing"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

// A history grows with every queue and every key of a message. However large many histories are, moves, deaths and
// entries to another log become commands and frames of about frameBytes: the journal would refuse larger ones.
func TestCommandsAreBoundedByTheBytesOfHistories(t *testing.T) {
	const messages, size = 16, frameBytes / 4
	dying := func(config queue.Config, name, to string) definition {
		return definition{name, config, settings(func(s *queue.Settings) { s.DeadLetter, s.TTL = true, 10 }), DeadLetter{Exchange: to}}
	}
	f := newFleet(t, []definition{
		{"a", quorum, queue.Unlimited(), DeadLetter{}}, dying(quorum, "b", "to c"), dying(classic, "c", "to d"),
		{"d", quorum, queue.Unlimited(), DeadLetter{}},
	}, table{"to c": {"c"}, "to d": {"d"}})
	for range messages {
		f.publish("a", nil, -1)
	}
	moves := f.movesTo("a", "b")
	for i := range moves {
		h := deadletter.History{Exchange: "x", Keys: []string{"k"}, ReplayedFrom: fmt.Sprint(i) + strings.Repeat("r", size)}
		moves[i].History = h.Append(nil)
	}
	for len(moves) > 0 {
		e, err := f.leader.move(f.queues["a"], moves)
		if err != nil || len(e.moved) == 0 {
			t.Fatalf("%d moves of %d began: %v", len(e.moved), len(moves), err)
		}
		f.quiesce()
		moves = moves[len(e.moved):]
	}
	for range 8 {
		f.now.Add(20)
		f.work()
		if err := f.leader.Journal.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for k, l := range f.logs {
		if l.most > frameBytes+2*size {
			t.Errorf("group %d has a command of %d bytes, want about %d", k+1, l.most, frameBytes)
		}
	}
	serials, from := f.in("d")
	if len(serials) != messages {
		t.Errorf("%d messages have arrived, want %d", len(serials), messages)
	}
	seen := map[message.Serial]bool{}
	for i, s := range serials {
		if seen[s] || len(from[i]) < size {
			t.Errorf("message %d comes again, or with a history of %d bytes", s, len(from[i]))
		}
		seen[s] = true
	}
	f.agree()
}
