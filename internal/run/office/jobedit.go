package office

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
)

// An edit is a job with one letter. Its draft is in the archive before the job begins, so the record has nothing of what is edited:
// a job without a draft has changed nothing.

// FailEditStaged and its neighbours are failpoints of an edit.
const (
	FailEditNoted    = "edit-noted"    // the record is stored, there is no draft
	FailEditStaged   = "edit-staged"   // the draft is in the archive
	FailEditArchived = "edit-archived" // the original is there too
	FailEditSent     = "edit-sent"     // the draft has been sent, and the record does not say so
)

// EditFailpoints lists them.
var EditFailpoints = []string{FailEditNoted, FailEditStaged, FailEditArchived, FailEditSent}

// editEvery is how often an edit looks whether its letter is free.
const editEvery = 50 * time.Millisecond

// checkEdit says what is wrong with the parts of the request that only an edit has, or that an edit cannot have.
func (r *Request) checkEdit() error {
	o := &r.How
	if r.Action != letters.EditLetter {
		if r.Edit != nil || o.Then != "" {
			return refuse(BadRequest, "edit, then: only the action edit has them")
		}
		return nil
	}
	switch {
	case r.Edit == nil:
		return refuse(BadRequest, "edit: it is missing; it says what changes")
	case len(r.IDs) != 1 || len(r.Queues) != 1 || len(r.Filter) > 0:
		return refuse(BadRequest, "ids: an edit changes one letter: name its queue and its id, and no filter")
	case o.Then != "" && o.Then != ThenReplay && o.Then != ThenStay:
		return refuse(BadRequest, "then: '%s' is none; it must be replay or stay", o.Then)
	case o.Then == ThenStay && (o.ToQueue != "" || o.ToExchange != nil || o.RoutingKey != nil):
		return refuse(BadRequest, "to_queue, to_exchange, routing_key: the letter is to stay in its queue")
	case o.Rate != 0 || o.Order != "" || o.OrderBy != "" || o.Limit != 0 || o.MaxReplays != nil || o.Canary != nil || o.StaggerMS != 0 || o.ScheduleMS != 0:
		return refuse(BadRequest, "rate, order, order_by, limit, max_replays, canary, stagger_ms, schedule_ms: an edit has one letter, and none of these")
	}
	return nil
}

// edits is the edit that a request or a job is about.
func (o *How) edits(job uint64, p *place, id string) (e letters.Edit, err error) {
	incarnation, entry, ok := ParseLetterID(id)
	if !ok || p.Incarnation != 0 && p.Incarnation != incarnation {
		return e, refuse(BadRequest, "ids: '%s' is no id of a letter of queue '%s'", id, p.Queue)
	}
	return letters.Edit{Errand: o.errand(letters.EditLetter, job), Queue: message.QueueName(p.Queue), Incarnation: incarnation, ID: entry}, nil
}

// editMade is an edit that was looked at.
type editMade struct {
	letters.Edit
	original letters.Original
	draft    message.Record
}

// makeEdit makes the edited copy, and says where it would go.
func (m *Jobs) makeEdit(ctx context.Context, c *broker.Connection, r *Request) (e editMade, p Plan, err error) {
	p = Plan{Routes: []Route{}, Unroutable: []Left{}, Of: 1}
	errand := r.errand(letters.EditLetter, 0)
	there, _, err := letters.As(c).LettersOf(message.QueueName(r.Queues[0]), &errand, 0)
	if err != nil {
		return e, p, err
	}
	if e.Edit, err = r.edits(0, &place{Queue: r.Queues[0], Incarnation: there}, r.IDs[0]); err != nil {
		return e, p, err
	}
	if e.original, err = letters.As(c).Original(&e.Edit); letters.IsGone(err) {
		return e, p, refuse(Conflict, "ids: letter %s has left queue '%s'", r.IDs[0], r.Queues[0])
	} else if err != nil {
		return e, p, err
	}
	if mask := m.office.masks.Mask(r.VHost); !r.Reveal && mask.Hides(e.original.Record) {
		return e, p, refuse(Forbidden, "masks of vhost '%s' hide something of the letter: who edits it must see it (reveal=true)", r.VHost)
	}
	history, _ := deadletter.Parse(e.original.History) // a parked letter may have none
	edited, diff, err := r.Edit.Apply(e.original.Record, &history)
	if err != nil {
		return e, p, refuse(BadRequest, "%v", err)
	}
	p.Diff = diff
	if e.draft, err = letters.As(c).Draft(&e.original, edited.Properties, edited.Sections, edited.Body); err != nil {
		return e, p, err
	}
	if !e.original.Ready {
		p.Unroutable = append(p.Unroutable, Left{"a consumer has it, or it is on its way", 1})
		return e, p, nil
	}
	at, err := letters.As(c).ForecastEdit(ctx, &e.Edit, &e.original, e.draft)
	switch {
	case err != nil:
	case at == nil:
		p.NoOrigin = 1
	case at.What == letters.LedNowhere:
		p.Unroutable = append(p.Unroutable, Left{at.Why, 1})
	default:
		p.Count = 1
		p.Routes = append(p.Routes, Route{at.Exchange, at.Key, at.Queues, 1})
	}
	return e, p, err
}

func (m *Jobs) surveyEdit(ctx context.Context, c *broker.Connection, r *Request, _ []place, _ int64) (Plan, error) {
	_, p, err := m.makeEdit(ctx, c, r)
	return p, err
}

// startEdit starts the job of an edit that was planned.
func (m *Jobs) startEdit(ctx context.Context, c *broker.Connection, r *Request, at int64) (Job, error) {
	if m.b.Alarmed() {
		why, _ := m.b.Alarms()
		return Job{}, refuse(Conflict, "the node is %s: an edit begins when that ends", why)
	}
	e, p, err := m.makeEdit(ctx, c, r)
	if err != nil {
		return Job{}, err
	}
	if p.Count == 0 {
		return Job{}, refuse(Conflict, "the letter cannot be edited now; ask with dry_run=true why")
	}
	if err := letters.As(c).ArchiveEnd(&e.Edit); err != nil {
		return Job{}, err
	}
	there := place{Queue: r.Queues[0], Incarnation: e.Incarnation}
	asked := *r
	asked.Edit = nil
	j, err := m.create(c, &asked, &record{Places: []place{there}, At: at, Archive: e.Archive, Since: e.Since}, 1, func(job uint64) error {
		m.fail(FailEditNoted)
		e.Job = job
		err := letters.As(c).StageEdit(&e.Edit, &e.original, e.draft)
		m.fail(FailEditStaged)
		return err
	})
	if err == nil {
		m.used(r.Token)
	}
	return j, err
}

// edit carries the job out, and says how long to wait if it is not over.
func (w *worker) edit(conn *broker.Connection, r *record) (wait time.Duration, err error) {
	m := w.m
	if len(r.Names) != 1 {
		return 0, w.end(Failed, "its record does not say which letter it edits")
	}
	e, err := r.Options.edits(r.ID, &r.Places[0], r.Names[0])
	if err != nil {
		return 0, w.end(Failed, err.Error())
	}
	e.Archive, e.Since = r.Archive, r.Since
	for {
		s, err := letters.As(conn).StepEdit(m.life, &e)
		if err != nil {
			return 0, err
		}
		switch s.What {
		case letters.EditWaits:
			return editEvery, nil
		case letters.EditArchived:
			m.fail(FailEditArchived)
			continue
		case letters.EditStuck:
			return 0, w.halt(fmt.Sprintf("the original is in queue '%s', and the edited letter waits there: %s", broker.Archive, s.Place.Why))
		}
		m.fail(FailEditSent)
		return 0, w.edited(&s)
	}
}

// dropDraft takes the draft of a cancelled edit out of the archive, if it is of no use there. If that fails, the archive drops it
// when its time is over; until then nothing but a consumer of the archive gets it.
func (m *Jobs) dropDraft(j *job) {
	m.mu.Lock()
	conn, e := j.conn, letters.Edit{Errand: letters.Errand{Job: j.r.ID, Action: letters.EditLetter}, Archive: j.r.Archive, Since: j.r.Since}
	m.mu.Unlock()
	if err := letters.As(conn).DropDraft(m.life, &e); err != nil {
		m.log.Debug("The draft of a cancelled edit stays in the archive for now", "job", e.Job, "error", err)
	}
}

// edited ends the job with what its last step has come to.
func (w *worker) edited(s *letters.EditStep) error {
	stays := Stays{Examined: 1}
	state, why := Done, ""
	switch s.What {
	case letters.EditKept:
		why = "the edited letter stays in its queue: " + s.Place.Why
		if s.Place.What == letters.LedNowhere {
			stays.Unroutable = 1
		} else {
			stays.Refused = 1
		}
	case letters.EditGone:
		stays.Gone, why = 1, "the letter has left its queue meanwhile, and was not edited"
	case letters.EditDropped:
		stays.Refused, why = 1, "the letter was not edited: "+s.Place.Why
	case letters.EditNoDraft:
		state, why = Failed, "the node ended before it had the edited copy: nothing has changed"
	case letters.EditLost:
		if tally := w.m.b.Node().JobTally(w.j.r.ID); tally.Moved == 0 {
			state, why = Failed, fmt.Sprintf("somebody has taken the edited copy out of queue '%s'; the original is there, if nobody has taken that", broker.Archive)
		}
	}
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	w.j.r.Stays = stays
	if w.j.r.State != Running {
		return cmp.Or(m.store(&w.j.r, true), errStopped)
	}
	return m.set(w.j, Actor{}, state, why)
}

// halt halts the job, unless it was stopped meanwhile.
func (w *worker) halt(why string) error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.j.r.State != Running {
		return errStopped
	}
	return w.m.set(w.j, Actor{}, Halted, why)
}
