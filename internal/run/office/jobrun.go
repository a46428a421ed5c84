package office

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/moment"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
)

// jobSlice is how many letters a job moves at a time, jobLook how many messages it looks at for that.
const jobSlice, jobLook = 256, 1024

// How often a job looks whether an alarm is over, and whether a group has a leader again.
const alarmEvery, leaderEvery = 250 * time.Millisecond, time.Second

// run carries a job out until it is not running any more.
func (m *Jobs) run(j *job, sleep context.Context) {
	w := &worker{m: m, j: j, began: m.office.Now()}
	for {
		m.mu.Lock()
		goesOn := m.life.Err() == nil && (j.r.State == Running || j.r.State == Halted && j.r.Alarm)
		if !goesOn {
			j.wake()
			j.wake = nil
			dropped := j.r.Action == broker.EditLetter && j.r.State == Cancelled
			m.mu.Unlock()
			if dropped {
				m.dropDraft(j)
			}
			return
		}
		if sleep.Err() != nil { // it was stopped and resumed meanwhile
			sleep, j.wake = context.WithCancel(m.life)
			w.began, w.moved = m.office.Now(), 0
		}
		conn := j.conn
		m.mu.Unlock()
		wait, err := w.step(conn)
		if err == nil {
			pause(sleep, wait)
			continue
		}
		m.failed(j, sleep, err)
	}
}

// failed decides what follows from an error of a slice.
func (m *Jobs) failed(j *job, sleep context.Context, err error) {
	var refused *topology.Error
	switch {
	case m.life.Err() != nil || errors.Is(err, errStopped):
	case partition.Lost(err):
		pause(sleep, leaderEvery) // the group has no leader here, for now
	case errors.As(err, &refused):
		m.mu.Lock()
		defer m.mu.Unlock()
		if j.r.State == Running {
			_ = m.set(j, Actor{}, Halted, refused.Text)
		}
	default:
		m.mu.Lock()
		defer m.mu.Unlock()
		if j.r.State == Running {
			_ = m.set(j, Actor{}, Halted, err.Error())
		}
	}
}

// worker is what the goroutine of a job remembers.
type worker struct {
	m     *Jobs
	j     *job
	began time.Time
	moved int // since began, for the rate

	reader *letter.Reader
	choose chooser
	newest []queue.ID // what is left of the current queue with order Newest; the last goes first
	listed int        // the place of which newest is, plus 1
}

// step carries out a slice, and says how long to wait after it.
func (w *worker) step(conn *broker.Connection) (wait time.Duration, err error) {
	m, j := w.m, w.j
	if m.b.Alarmed() {
		return alarmEvery, w.alarm(true)
	}
	if err := w.alarm(false); err != nil {
		return 0, err
	}
	m.mu.Lock()
	r := j.r
	r.Places = slices.Clone(r.Places)
	m.mu.Unlock()
	if w.choose.choose == nil {
		if w.choose, err = newChooser(&r); err != nil {
			return 0, err
		}
		w.reader = letter.NewReader(m.office.Names)
	}
	most := jobSlice
	if r.Options.Rate > 0 {
		most = min(most, max(1, r.Options.Rate/10))
	}
	tally := m.b.Node().JobTally(r.ID)
	if limit := r.Options.Limit; limit > 0 {
		if most = min(most, limit-int(tally.Moved)); most <= 0 {
			return 0, w.end(Done, "")
		}
	}
	if c := r.Options.Canary; c != nil && !r.Sung {
		if left := c.First - int(tally.Moved); left > 0 && r.Canary == 0 {
			most = min(most, left)
		} else {
			return w.canary(c, &r, &tally)
		}
	}
	if r.Current == len(r.Places) {
		return 0, w.end(Done, "")
	}
	if r.Action == broker.EditLetter {
		return w.edit(conn, &r)
	}
	p := &r.Places[r.Current]
	errand := r.Options.errand(r.Action, r.ID)
	var slice broker.ErrandSlice
	if r.Options.Order == Newest {
		slice, err = w.newestSlice(conn, &errand, p, most)
	} else {
		slice, err = w.oldestSlice(conn, &errand, p, most)
	}
	switch {
	case queueGone(err):
		slice, err = broker.ErrandSlice{Done: true}, nil
		r.Why = fmt.Sprintf("queue '%s' was deleted", p.Queue)
	case err != nil:
		return 0, err
	}
	m.fail(FailJobMoved)
	if slice.Done {
		r.Current++
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	j.r.Places, j.r.Current = r.Places, r.Current
	if r.Why != "" && j.r.State == Running {
		j.r.Why = r.Why
	}
	j.r.Stays.add(&slice)
	w.moved += slice.Moved
	if err := m.store(&j.r, false); err != nil {
		return 0, err
	}
	m.fail(FailJobRecorded)
	if rate := r.Options.Rate; rate > 0 && slice.Moved > 0 {
		return w.began.Add(moment.Duration(int64(w.moved), time.Second) / time.Duration(rate)).Sub(m.office.Now()), nil
	}
	return 0, nil
}

// queueGone says whether the queue of the slice is gone.
func queueGone(err error) bool {
	var refused *topology.Error
	return partition.Gone(err) || errors.As(err, &refused) && refused.Kind == topology.NotFound
}

// end ends the job, unless it was stopped meanwhile.
func (w *worker) end(s State, why string) error {
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.j.r.State != Running {
		return errStopped
	}
	if why == "" {
		why = w.j.r.Why // a queue that was deleted
	}
	return m.set(w.j, Actor{}, s, why)
}

// alarm halts the job for an alarm, or lets it go on.
func (w *worker) alarm(on bool) error {
	m, r := w.m, &w.j.r
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case on && r.State == Running:
		why, _ := m.b.Alarms()
		r.Alarm = true
		return m.set(w.j, Actor{}, Halted, "the node is "+why+"; the job goes on when that ends")
	case !on && r.State == Halted && r.Alarm:
		w.began, w.moved = m.office.Now(), 0
		return m.set(w.j, Actor{}, Running, "")
	case r.State != Running && !r.Alarm:
		return errStopped
	}
	return nil
}

// canary waits after the first letters, and decides whether the job goes on.
func (w *worker) canary(c *Canary, r *record, t *partition.JobTally) (wait time.Duration, err error) {
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	at := &w.j.r
	switch now := m.office.now(); {
	case at.State != Running:
		return 0, errStopped
	case r.Canary == 0:
		at.Canary = moment.After(now, c.WaitMS)
		return moment.Milliseconds(c.WaitMS), m.store(at, true)
	case now < r.Canary:
		return moment.Milliseconds(r.Canary - now), nil
	}
	if share := 100 * float64(t.DiedAgain) / float64(max(1, t.Came)); share > c.Percent {
		return 0, m.set(w.j, Actor{}, Halted, fmt.Sprintf("canary: %d of the first %d died again, which is %.3g %%; at most %.3g %% are allowed. Resume goes on without a canary", t.DiedAgain, t.Came, share, c.Percent))
	}
	at.Canary, at.Sung = 0, true
	w.began, w.moved = m.office.Now(), 0
	return 0, m.store(at, true)
}

// oldestSlice moves the next letters of a queue.
func (w *worker) oldestSlice(conn *broker.Connection, e *broker.Errand, p *place, most int) (slice broker.ErrandSlice, err error) {
	cursor, err := p.cursor()
	if err != nil {
		return slice, err
	}
	e.Choose = func(v *queue.View, rec message.Record, history []byte) bool {
		return w.choose.choose(w.reader, p.Incarnation, v.ID, rec, history)
	}
	slice, err = conn.RunErrand(w.m.life, message.QueueName(p.Queue), p.Incarnation, e, cursor, jobLook, most, nil)
	if err == nil {
		p.Cursor = slice.Next.Append(nil)
	}
	return slice, err
}

// newestSlice moves the newest letters of a queue. It lists them all first.
func (w *worker) newestSlice(conn *broker.Connection, e *broker.Errand, p *place, most int) (slice broker.ErrandSlice, err error) {
	cursor, err := p.cursor()
	if err != nil {
		return slice, err
	}
	if at := w.j.r.Current + 1; w.listed != at { // only this goroutine changes Current
		list := *e
		list.DryRun, w.newest = true, nil
		before := queue.ID(p.Before)
		list.Choose = func(v *queue.View, rec message.Record, history []byte) bool {
			if (before == 0 || ahead(v.ID, before)) && w.choose.choose(w.reader, p.Incarnation, v.ID, rec, history) {
				w.newest = append(w.newest, v.ID)
			}
			return false
		}
		for c, done := cursor, false; !done; {
			s, err := conn.RunErrand(w.m.life, message.QueueName(p.Queue), p.Incarnation, &list, c, jobLook, 1, nil)
			if err != nil {
				return slice, err
			}
			c, done = s.Next, s.Done
		}
		w.listed = at
	}
	from := max(0, len(w.newest)-most)
	ids := w.newest[from:]
	for from < len(w.newest)-1 && w.newest[from].Lane() != w.newest[len(w.newest)-1].Lane() {
		from++
		ids = w.newest[from:]
	}
	if len(ids) == 0 {
		slice.Done = true
		return slice, nil
	}
	last, passed := ids[len(ids)-1], false
	e.Choose = func(v *queue.View, _ message.Record, _ []byte) bool {
		passed = passed || !ahead(v.ID, last)
		_, ok := slices.BinarySearch(ids, v.ID)
		return ok
	}
	for c := cursor.Behind(ids[0] - 1); !passed && !slice.Done; {
		s, err := conn.RunErrand(w.m.life, message.QueueName(p.Queue), p.Incarnation, e, c, 2*most, most, nil)
		if err != nil {
			w.listed = 0
			return slice, err
		}
		sum := broker.ErrandSlice{Next: s.Next, Done: s.Done, Examined: slice.Examined + s.Chosen, Moved: slice.Moved + s.Moved, Unroutable: slice.Unroutable + s.Unroutable}
		sum.Refused, sum.NoOrigin, sum.TooOften, sum.Gone = slice.Refused+s.Refused, slice.NoOrigin+s.NoOrigin, slice.TooOften+s.TooOften, slice.Gone+s.Gone
		slice, c = sum, s.Next
	}
	w.newest = w.newest[:from]
	slice.Done = from == 0
	p.Before = uint64(ids[0])
	return slice, nil
}

// ahead says whether an entry stands before another in the order in which a queue is browsed.
func ahead(a, b queue.ID) bool {
	if a.Lane() != b.Lane() {
		return a.Lane() > b.Lane()
	}
	return a < b
}

// chooser says which messages are meant.
type chooser struct {
	choose func(r *letter.Reader, incarnation uint64, id queue.ID, rec message.Record, history []byte) bool
}

func newChooser(r *record) (c chooser, err error) {
	q, err := letter.ParseQuery(r.VHost, r.Filter, r.At)
	if err != nil {
		return c, refuse(BadRequest, "%v", err)
	}
	type entry struct {
		incarnation uint64
		id          queue.ID
	}
	var named map[entry]bool
	for _, name := range r.Names {
		incarnation, id, ok := ParseLetterID(name)
		if !ok {
			return c, refuse(BadRequest, "ids: '%s' is no id of a letter", name)
		}
		if named == nil {
			named = map[entry]bool{}
		}
		named[entry{incarnation, id}] = true
	}
	c.choose = func(r *letter.Reader, incarnation uint64, id queue.ID, rec message.Record, history []byte) bool {
		if named != nil && !named[entry{incarnation, id}] {
			return false
		}
		l, ok := r.Read(rec, history)
		return ok && q.Match(l)
	}
	return c, nil
}
