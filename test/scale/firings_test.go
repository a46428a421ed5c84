package scale

import (
	"encoding/binary"
	"slices"
	"sort"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"bartleby.mq/test/node"
)

// lengths tells how long a queue was that nobody consumes, by what it said, about once a
// millisecond.
type lengths []look

// look is what the queue said: the moment, in Unix milliseconds, is that of the answer.
type look struct {
	moment int64
	length int
}

// watchLength asks until the queue has the length given.
func watchLength(t *testing.T, ch *amqp.Channel, queue string, until int, stolen thefts) (s lengths) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for length, moved := -1, time.Now(); length != until; <-tick.C {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		stolen.note(t, now.UnixMilli())
		switch {
		case q.Messages != length:
			s = append(s, look{now.UnixMilli(), q.Messages})
			length, moved = q.Messages, now
		case now.Sub(moved) > time.Minute:
			t.Fatalf("queue %q has had %d messages for a minute, and not %d", queue, length, until)
		}
	}
	return s
}

// came is when message i had come to a queue that grows, in Unix milliseconds.
func (s lengths) came(i int) int64 {
	return s[sort.Search(len(s), func(k int) bool { return s[k].length > i })].moment
}

// trips are how long the publication of each message took until it was confirmed, in
// milliseconds; before that, when it was sent, in milliseconds since began.
type trips struct {
	began time.Time
	each  []atomic.Uint32
}

func newTrips(n int) *trips { return &trips{time.Now(), make([]atomic.Uint32, n)} }

// sent is told that message i is about to be sent.
func (s *trips) sent(i int) { s.each[i].Store(uint32(time.Since(s.began).Milliseconds())) }

// sure is told that the broker has it.
func (s *trips) sure(i int) {
	s.each[i].Store(uint32(time.Since(s.began).Milliseconds()) - s.each[i].Load())
}

// longTrip is from how many milliseconds on it is not known well enough when a message's
// TTL began: with the sending, says the lateness, while it is when the broker has it.
const longTrip = 5

// known says whether it is, and how many milliseconds later than with the sending it may have been.
func (s *trips) known(i int) (later int64, ok bool) {
	d := int64(s.each[i].Load())
	return d, d <= longTrip
}

// firings are the messages whose deadline has passed, in their order: by how many
// milliseconds each was late, and from which on each second had them. Of those with a long trip
// it is not known, but whether they were early.
type firings struct {
	trips    *trips
	lateness []int64
	least    int64
	unknown  int
	seconds  []second
	stolen   thefts
}

// deadline is a message's body: when its TTL ends at the earliest, in Unix milliseconds, and its number.
func deadline(b []byte, moment int64, number int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(moment)), uint32(number))
}

type second struct {
	number int64 // Unix seconds
	from   int
}

// note is told of a message that came at a moment, with its deadline for a body.
func (f *firings) note(t testing.TB, moment int64, body []byte) {
	f.begin(t, moment)
	late := moment - int64(binary.BigEndian.Uint64(body))
	f.least = min(f.least, late)
	if _, ok := f.trips.known(int(binary.BigEndian.Uint32(body[8:]))); !ok {
		f.unknown++
		return
	}
	f.lateness = append(f.lateness, late)
}

// noteGone is told how long a queue was from which messages go with their deadlines, those of
// all messages from the first to the last. Which of them have gone it cannot tell: it takes
// them to go in that order. Where that of a message is not known well, it is as late as it may be,
// but nothing may go before it was as early as it may be.
func (f *firings) noteGone(t testing.TB, s lengths, deadlines []int64) {
	latest := make([]int64, len(deadlines))
	for i, d := range deadlines {
		later, ok := f.trips.known(i)
		if latest[i] = d; !ok {
			latest[i] += later
			f.unknown++
		}
	}
	slices.Sort(latest)
	slices.Sort(deadlines)
	gone := 0
	for _, x := range s {
		f.begin(t, x.moment)
		for ; gone < len(deadlines)-x.length; gone++ {
			f.least = min(f.least, x.moment-deadlines[gone])
			f.lateness = append(f.lateness, x.moment-latest[gone])
		}
	}
}

// begin begins another second if the moment, in Unix milliseconds, is in one.
func (f *firings) begin(t testing.TB, moment int64) {
	if number := moment / 1000; len(f.seconds) == 0 || f.seconds[len(f.seconds)-1].number != number {
		f.stolen.note(t, moment)
		f.seconds = append(f.seconds, second{number, len(f.lateness)})
	}
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
		if len(in) == 0 || slices.Max(in) <= lateBound {
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
