package scale

import (
	"encoding/binary"
	"slices"
	"sort"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// arrivals tells when each message came to a queue that nobody consumes, by what
// the queue said of its length, about once a millisecond.
type arrivals []look

// look is how many messages had come when the queue was asked, or before: the
// moment, in Unix milliseconds, is that of the answer.
type look struct {
	moment int64
	length int
}

// arrive asks until n messages have come.
func arrive(t *testing.T, ch *amqp.Channel, queue string, n int, stolen thefts) (a arrivals) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for length, moved := 0, time.Now(); length < n; <-tick.C {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		stolen.note(t, now.UnixMilli())
		switch {
		case q.Messages > length:
			a = append(a, look{now.UnixMilli(), q.Messages})
			length, moved = q.Messages, now
		case now.Sub(moved) > time.Minute:
			t.Fatalf("%d of %d messages have come, and none for a minute", length, n)
		}
	}
	return a
}

// moment is when message i came, at the latest, in Unix milliseconds.
func (a arrivals) moment(i int) int64 {
	return a[sort.Search(len(a), func(k int) bool { return a[k].length > i })].moment
}

// firings are the messages whose deadline has passed, in their order: by how many
// milliseconds each was late, and from which on each second had them.
type firings struct {
	lateness []int64
	seconds  []second
	stolen   thefts
}

type second struct {
	number int64 // Unix seconds
	from   int
}

// note is told of a message that came at a moment, and has its deadline in its body.
func (f *firings) note(t testing.TB, moment int64, body []byte) {
	if number := moment / 1000; len(f.seconds) == 0 || f.seconds[len(f.seconds)-1].number != number {
		f.stolen.note(t, moment)
		f.seconds = append(f.seconds, second{number, len(f.lateness)})
	}
	f.lateness = append(f.lateness, moment-int64(binary.BigEndian.Uint64(body)))
}

// thefts are what other machines had had of the processors when each second began.
type thefts map[int64]time.Duration

// note is told each moment.
func (s thefts) note(t testing.TB, moment int64) {
	if _, ok := s[moment/1000]; ok {
		return
	}
	d, err := node.Stolen()
	if err != nil {
		t.Fatal(err)
	}
	s[moment/1000] = d
}

// lateBound is the lateness, in milliseconds, above which a second is told of.
const lateBound = 20

// report logs the seconds that had late messages, and what others took of the
// processors in each: on a machine that is not one's own, this tells whose fault
// it was.
func (f *firings) report(t testing.TB) {
	for k, s := range f.seconds {
		end := len(f.lateness)
		if k+1 < len(f.seconds) {
			end = f.seconds[k+1].from
		}
		in := f.lateness[s.from:end]
		if slices.Max(in) <= lateBound {
			continue
		}
		above := 0
		for _, x := range in {
			if x > lateBound {
				above++
			}
		}
		stolen := "?"
		if end, ok := f.stolen[s.number+1]; ok {
			stolen = (end - f.stolen[s.number]).String()
		}
		t.Logf("second %d: %d of %d messages later than %d ms, worst %d ms; %s of the processors stolen by other machines",
			s.number-f.seconds[0].number, above, len(in), lateBound, slices.Max(in), stolen)
	}
}
