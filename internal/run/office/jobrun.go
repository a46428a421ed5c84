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
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
)

// jobSlice is how many letters a job moves at a time, jobLook how many messages it looks at for that.
const jobSlice, jobLook = 1024, 1024

// How often a job looks whether an alarm is over, and whether a group has a leader again.
const alarmEvery, leaderEvery = 250 * time.Millisecond, time.Second

// run carries a job out until it is not running any more.
func (m *Jobs) run(j *job, sleep context.Context) {
	w := &worker{m: m, j: j, began: m.office.Now()}
	for {
		m.mu.Lock()
		goesOn := m.life.Err() == nil && (j.r.State == Running || j.r.State == Planned || j.r.State == Halted && j.r.Alarm)
		if !goesOn {
			j.wake()
			j.wake = nil
			dropped := j.r.Action == letters.EditLetter && j.r.State == Cancelled
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
	moved int  // since began, for the rate
	begun bool // see awaitsOffers

	choose chooser
	list   []listed // what is left of the current queue, if the job lists letters
	listed int      // the place of which list is, plus 1
}

// step carries out a slice, and says how long to wait after it.
func (w *worker) step(conn *broker.Connection) (wait time.Duration, err error) {
	m, j := w.m, w.j
	if wait, err := w.planned(); wait > 0 || err != nil {
		return wait, err
	}
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
	if w.choose == nil {
		if w.choose, err = m.newChooser(&r); err != nil {
			return 0, err
		}
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
	if r.Action == letters.EditLetter {
		return w.edit(conn, &r)
	}
	p := &r.Places[r.Current]
	errand := r.Options.errand(r.Action, r.ID)
	errand.HeedsBreakers = true
	if w.awaitsOffers(conn, &errand, p) {
		return offerEvery, nil
	}
	slice, err := w.nextSlice(conn, &errand, &r, most)
	switch {
	case queueGone(err):
		slice, err = letters.ErrandSlice{Done: true}, nil
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
	if apart := r.Options.StaggerMS; apart > 0 && slice.Moved > 0 {
		return moment.Milliseconds(apart), nil
	}
	if rate := r.Options.Rate; rate > 0 && slice.Moved > 0 {
		return w.began.Add(moment.Duration(int64(w.moved), time.Second) / time.Duration(rate)).Sub(m.office.Now()), nil
	}
	return 0, nil
}

// A node that was killed may have offered letters of the job's last slice to another log. They are not met while they are on offer: they
// arrive, or are back in their places when the target has refused them. So a job that begins waits until none is on offer, offerPatience
// at most, since those of other jobs may always be.
const offerEvery, offerPatience = 20 * time.Millisecond, 30 * time.Second

// awaitsOffers says whether the worker waits for letters that are on offer.
func (w *worker) awaitsOffers(conn *broker.Connection, e *letters.Errand, p *place) bool {
	if w.begun {
		return false
	}
	_, there, err := letters.As(conn).LettersOf(message.QueueName(p.Queue), e, p.Incarnation)
	w.begun = err != nil || there.Offered == 0 || w.m.office.Now().Sub(w.began) > offerPatience
	return !w.begun
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

// planned waits for the time at which the job begins. It looks now and then: clocks are set.
func (w *worker) planned() (wait time.Duration, err error) {
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	at := &w.j.r
	if at.State != Planned {
		return 0, nil
	}
	now := m.office.now()
	if left := at.Options.ScheduleMS - now; left > 0 {
		return min(moment.Milliseconds(left), time.Minute), nil
	}
	at.State, at.BeganMS = Running, now
	w.began, w.moved = m.office.Now(), 0
	return 0, m.storeWith(at, m.act(at, Actor{}, "began"))
}

// canary waits after the first letters, and decides whether the job goes on.
func (w *worker) canary(c *Canary, r *record, t *partition.JobTally) (wait time.Duration, err error) {
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	at := &w.j.r
	switch now := m.office.deaths(); { // which never steps back
	case at.State != Running:
		return 0, errStopped
	case r.Canary == 0 || r.Canary-now > c.WaitMS: // the clock was wrong, and was set right
		at.Canary = moment.After(now, c.WaitMS)
		return min(moment.Milliseconds(c.WaitMS), time.Minute), m.store(at, true)
	case now < r.Canary:
		return min(moment.Milliseconds(r.Canary-now), time.Minute), nil
	}
	if t.Came > 0 && t.Waiting() == t.Came {
		return 0, m.set(w.j, Actor{}, Halted, fmt.Sprintf("none of the first %d letters was consumed within %v, so nothing is known of them. Is there a consumer? Resume sends the others without such a wait", t.Came, moment.Milliseconds(c.WaitMS)))
	}
	if share := 100 * float64(t.DiedAgain) / float64(max(1, t.Came)); share > c.Percent {
		return 0, m.set(w.j, Actor{}, Halted, fmt.Sprintf("%d of the first %d letters died again, which is %.3g %%; at most %.3g %% are allowed. Resume sends the others without such a wait", t.DiedAgain, t.Came, share, c.Percent))
	}
	at.Canary, at.Sung = 0, true
	w.began, w.moved = m.office.Now(), 0
	return 0, m.store(at, true)
}

// nextSlice moves the next letters of a queue.
func (w *worker) nextSlice(conn *broker.Connection, e *letters.Errand, r *record, most int) (slice letters.ErrandSlice, err error) {
	p := &r.Places[r.Current]
	e.Choose = func(v *queue.View, rec message.Record, history []byte) bool {
		return w.choose(p.Incarnation, v.ID, rec, history)
	}
	if r.lists() {
		return w.listedSlice(conn, e, r, p, most)
	}
	cursor, err := p.cursor()
	if err != nil {
		return slice, err
	}
	slice, err = letters.As(conn).RunErrand(w.m.life, message.QueueName(p.Queue), p.Incarnation, e, cursor, jobLook, most, nil)
	if err == nil {
		p.Cursor = slice.Next.Append(nil)
	}
	return slice, err
}

// listedSlice moves the next letters of a list.
func (w *worker) listedSlice(conn *broker.Connection, e *letters.Errand, r *record, p *place, most int) (slice letters.ErrandSlice, err error) {
	if w.listed != r.Current+1 {
		if w.list, err = w.m.list(w.m.life, conn, r, p); err != nil {
			return slice, err
		}
		w.listed = r.Current + 1
	}
	some := w.list[:min(len(w.list), most)]
	if len(some) == 0 {
		slice.Done = true
		return slice, nil
	}
	ids := make([]queue.ID, len(some))
	for i := range some {
		ids[i] = some[i].id
	}
	if r.Options.Order == Newest && r.Options.OrderBy == "" && !e.Spread {
		slices.Reverse(ids) // they lie then as they lay before
	}
	slice, err = letters.As(conn).RunErrandOn(w.m.life, message.QueueName(p.Queue), p.Incarnation, e, ids, nil)
	if err != nil {
		w.listed = 0
		return slice, err
	}
	last := some[slice.Handled-1]
	p.Before, p.BeforeKey = uint64(last.id), last.key
	w.list = w.list[slice.Handled:]
	slice.Done = len(w.list) == 0
	return slice, nil
}

// ahead says whether an entry stands before another in the order in which a queue is browsed.
func ahead(a, b queue.ID) bool {
	if a.Lane() != b.Lane() {
		return a.Lane() > b.Lane()
	}
	return a < b
}

// chooser says which messages are meant. One goroutine at a time uses it.
type chooser func(incarnation uint64, id queue.ID, rec message.Record, history []byte) bool

func (m *Jobs) newChooser(r *record) (chooser, error) {
	q, err := letter.ParseQuery(r.VHost, r.Filter, r.At)
	if err != nil {
		return nil, refuse(BadRequest, "%v", err)
	}
	type entry struct {
		incarnation uint64
		id          queue.ID
	}
	var named map[entry]bool
	for _, name := range r.Names {
		incarnation, id, ok := ParseLetterID(name)
		if !ok {
			return nil, refuse(BadRequest, "ids: '%s' is no id of a letter", name)
		}
		if named == nil {
			named = map[entry]bool{}
		}
		named[entry{incarnation, id}] = true
	}
	if named == nil {
		q.Group = 0 // the catalogue says which letters are in the group: see candidates
	}
	reader := m.reader(r.VHost, r.Masked)
	return func(incarnation uint64, id queue.ID, rec message.Record, history []byte) bool {
		if named != nil && !named[entry{incarnation, id}] {
			return false
		}
		l, ok := reader.Read(rec, history)
		return ok && q.Match(l)
	}, nil
}
