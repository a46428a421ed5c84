package partition

import (
	"testing"

	"bartleby.mq/internal/core/queue"
)

// A dead letter goes to each of its targets once. If one of several is deleted while its copy is on its way to
// another log, that target counts as reached, as if it had been deleted a moment later: the others do not get the
// message again.
func TestADeadLetterOfSeveralQueuesIsNotDoubledWhenOneGoes(t *testing.T) {
	for name, kinds := range map[string][3]queue.Config{
		"quorum to classic":            {quorum, classic, classic},
		"classic to quorum":            {classic, quorum, quorum},
		"classic to both":              {classic, classic, quorum},
		"quorum to both":               {quorum, quorum, classic},
		"what goes is in the same log": {classic, quorum, classic},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, []definition{
				dying("q", kinds[0], "x"), {"dlq", kinds[1], settings(func(*queue.Settings) {}), DeadLetter{}},
				{"tap", kinds[2], settings(func(*queue.Settings) {}), DeadLetter{}},
			}, table{"x": {"dlq", "tap"}})
			f.die("q", 3)
			f.remove("tap")
			f.routes["x"] = []string{"dlq"} // its binding is gone, too
			f.work()
			f.leader.RetryStranded()
			f.work()
			if n := f.leader.Counts(f.queues["dlq"]).Ready; n != 3 || f.leader.Stranded() != 0 {
				t.Errorf("dlq has %d messages, want 3; %d are stranded", n, f.leader.Stranded())
			}
		})
	}
}

// If the only target is gone, the dead letter waits until its exchange leads somewhere, and is not lost.
func TestADeadLetterOfOneQueueIsStrandedWhenThatGoes(t *testing.T) {
	f := newFleet(t, []definition{
		dying("q", quorum, "x"), {"dlq", classic, settings(func(*queue.Settings) {}), DeadLetter{}}, {"tap", classic, settings(func(*queue.Settings) {}), DeadLetter{}},
	}, table{"x": {"tap"}})
	f.die("q", 3)
	f.remove("tap")
	f.routes["x"] = []string{"dlq"}
	f.work()
	f.leader.RetryStranded()
	f.work()
	if n := f.leader.Counts(f.queues["dlq"]).Ready; n != 3 || f.leader.Stranded() != 0 {
		t.Errorf("dlq has %d messages, want 3; %d are stranded", n, f.leader.Stranded())
	}
}
