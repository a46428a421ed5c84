package letters

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

// Edit is an edit of one letter by a job. It has three steps, and each is one frame, or one command with an answer:
//
//	stage    a draft of the edited copy enters the archive
//	archive  the original moves from its queue to the archive
//	send     the draft moves from the archive to where it is to go
//
// So at no moment are there two letters that a consumer may get. What a step has done is seen by looking: at the queue of the
// original first and then at the archive, because the original leaves its queue only when the archive has it. Both have the job's
// number, and only the draft is marked as one. The job's tally counts the copy alone, when it is sent.
type Edit struct {
	Errand
	Queue       message.QueueName
	Incarnation uint64
	ID          queue.ID
	Archive     uint64 // incarnation of the archive
	Since       uint64 // the numbers of draft and original in the archive are not lower
}

// Original is a letter that is to be edited.
type Original struct {
	Record  message.Record
	History []byte
	Ready   bool // it lies in its queue, and nobody has it

	from broker.QueueInfo
}

// LetterID is the id of an entry as people see it: INCARNATION.ENTRY, both in base 36. It is the same for as long as the entry
// is in its queue.
func LetterID(incarnation uint64, id queue.ID) string {
	return strconv.FormatUint(incarnation, 36) + "." + strconv.FormatUint(uint64(id), 36)
}

// errGoneLetter says that the letter is not in its queue.
var errGoneLetter = errors.New("the letter has left the queue")

// IsGone says whether an edit failed because the letter has left its queue.
func IsGone(err error) bool { return errors.Is(err, errGoneLetter) }

// original returns the letter, with the rights that an edit takes.
func (c Client) original(e *Edit) (o Original, err error) {
	if o.from, err = c.errandQueue(e.Queue, &e.Errand, e.Incarnation); err != nil {
		return o, err
	}
	there := false
	err = c.node().Look(o.from.Runtime(), []queue.ID{e.ID}, func(v queue.View, rec message.Record, history []byte) bool {
		there = true
		o.Record, o.History = slices.Clone(rec), slices.Clone(history)
		o.Ready = !v.Out && !v.Dead && !v.Offered && v.NotBefore == 0
		return true
	})
	if err == nil && !there {
		err = errGoneLetter
	}
	return o, o.from.Missing(err)
}

// Original returns the letter that is to be edited, after checking that the client may edit it.
func (c Client) Original(e *Edit) (o Original, err error) {
	if _, _, err = c.LettersOf(e.Queue, &e.Errand, e.Incarnation); err != nil {
		return o, err
	}
	return c.original(e)
}

// Draft returns the record of an edited copy, with these properties and this body, after checking them as those of a publish. What
// the client did not change is not held against the client. sections is nil for a message of AMQP 0-9-1.
func (c Client) Draft(o *Original, properties []byte, sections *message.Sections, body []byte) (message.Record, error) {
	p := broker.Publication{Exchange: o.Record.Exchange(), Key: o.Record.Key(), Raw: properties, Sections: sections, Body: [][]byte{body}, Size: len(body)}
	before, _ := amqp091.ParseProps(o.Record.Properties())
	rec, err := c.record(&p, o.Record.BCC(), func(user []byte) bool { return bytes.Equal(before.UserID, user) })
	if err == nil && len(properties) > len(o.Record.Properties()) { // one that was too long before may become shorter
		err = fits(rec, o.History)
	}
	return rec, err
}

// record checks a publication and makes its record, with these BCC keys unless its headers have some. mayClaim says which user-ids
// it may have besides those that the client may publish with.
func (c Client) record(p *broker.Publication, bcc []byte, mayClaim func(user []byte) bool) (message.Record, error) {
	var err error
	if p.Props, err = amqp091.ParseProps(p.Raw); err != nil {
		return nil, topology.Refuse(topology.PreconditionFailed, "properties: %v", err)
	}
	if err := c.conn.Check(p); err != nil && !(p.FromAnother && mayClaim(p.Props.UserID)) {
		return nil, err
	}
	return c.conn.Record(p, bcc)
}

// lead notes where the edited copy goes. ok is false if nobody knows.
func (e *Edit) lead(o *Original, id queue.ID, rec message.Record, from *topology.Queue, editedFrom string) (p replayed, ok bool) {
	own, _ := deadletter.Parse(o.History)
	own.EditedFrom = editedFrom
	if e.Stay {
		return e.park(id, own, from, from.Name), true
	}
	h, ok := pastOf(o.Record, &own)
	if !ok {
		if e.To.Queue == "" && (e.To.Key == nil || e.To.Exchange == nil) {
			return p, false
		}
		h = nowhereKnown(&h)
	}
	return e.To.lead(id, rec, &h, from, own.Replayed(e.Job)), true
}

// into is the queue that an edited copy stays in, nil if it goes elsewhere.
func (e *Edit) into(from broker.QueueInfo) *partition.Queue {
	if e.Stay {
		return from.Runtime()
	}
	return nil
}

// ForecastEdit says where an edited copy would go; nil: nobody knows where the letter was first published.
func (c Client) ForecastEdit(ctx context.Context, e *Edit, o *Original, rec message.Record) (at *Place, err error) {
	p, ok := e.lead(o, e.ID, rec, o.from.Decl, "")
	if !ok {
		return nil, nil
	}
	dry := e.Errand
	dry.DryRun = true
	err = c.carryOut(ctx, o.from.Runtime(), &dry, []replayed{p}, e.into(o.from), &ErrandSlice{}, func(told *Place) { at = told })
	return at, o.from.Missing(err)
}

// ArchiveEnd prepares an edit: it makes the archive if need be, and notes where it ends.
func (c Client) ArchiveEnd(e *Edit) error {
	archive, err := c.archive()
	if err != nil {
		return err
	}
	q := archive.Runtime()
	there, err := c.node().WhatIsThere(q)
	if err != nil {
		return archive.Missing(err)
	}
	e.Archive, e.Since = q.Incarnation, there.Ends()[0]
	return nil
}

// StageEdit puts the draft into the archive and returns when it is durable. REQUIRES: the edit is noted where a restart finds it.
func (c Client) StageEdit(e *Edit, o *Original, rec message.Record) error {
	archive, err := c.archive()
	if err != nil {
		return err
	}
	h, _ := deadletter.Parse(o.History)
	if len(h.Deaths) == 0 {
		h.Profile = o.from.Decl.Profile
	}
	h.Marks = h.Moved(e.Job, string(e.Queue))
	h.Sent, h.Draft, h.EditedFrom = false, true, draftOf(o.Record)
	ref, b := c.broker().Bodies().Alloc(len(rec))
	copy(b, rec)
	d := []partition.Deposit{{Body: ref, History: h.Append(nil)}}
	if err := c.node().Deposit(archive.Runtime(), d); err != nil {
		return archive.Missing(err)
	}
	if !d[0].Taken {
		return topology.Refuse(topology.PreconditionFailed, "%s is full", archive.Decl.Resource())
	}
	return nil
}

// EditStep is what a step of an edit has come to.
type EditStep struct {
	What  EditState
	Place Place // of EditSent, EditKept, EditDropped and EditStuck; the last three say why
}

// EditState is how far an edit is.
type EditState uint8

// The states.
const (
	EditWaits    EditState = iota // draft or original is on its way, or with somebody: ask again in a moment
	EditArchived                  // the original has just come to the archive: ask again
	EditSent                      // the edited letter is where it was to go
	EditKept                      // it could not go there, and lies in the queue of the original
	EditStuck                     // it cannot lie there either: ask again when that has changed
	EditGone                      // the original has left its queue without the edit, which is dropped
	EditDropped                   // the archive does not take the original, and the edit is dropped
	EditNoDraft                   // there is no draft, and the original is in its queue: nothing has changed
	EditLost                      // there is no draft any more: it was sent, or somebody has taken it from the archive
)

// draftAt is what the archive has of an edit.
type draftAt struct {
	draft, original queue.ID // 0: none
	waits           bool     // the draft is on its way
	record          message.Record
	history         []byte // of the draft
}

func (c Client) findDraft(e *Edit, archive broker.QueueInfo) (at draftAt, err error) {
	q := archive.Runtime()
	if q.Incarnation != e.Archive {
		return at, nil
	}
	there, err := c.node().WhatIsThere(q)
	if err != nil {
		return at, archive.Missing(err)
	}
	cursor, of := there.At(0, e.Since), ""
	for done := false; !done && err == nil && (at.draft == 0 || at.original == 0); {
		cursor, done, err = c.node().Browse(q, cursor, replaySlice, func(v queue.View, rec message.Record, history []byte) bool {
			h, bad := deadletter.Parse(history)
			switch {
			case bad != nil || h.Job != e.Job:
			case h.Draft:
				of = h.EditedFrom
				at.draft, at.waits = v.ID, v.Out || v.Dead || v.Offered || v.NotBefore != 0
				at.record, at.history = slices.Clone(rec), slices.Clone(history)
			case of == "" || of == draftOf(rec): // the draft, if it is still there, is in front
				at.original = v.ID
			}
			return true
		})
	}
	return at, archive.Missing(err)
}

// StepEdit does the next step of an edit after its draft was staged, and returns when that is durable.
func (c Client) StepEdit(ctx context.Context, e *Edit) (s EditStep, err error) {
	archive, err := c.archive()
	if err != nil {
		return s, err
	}
	o, gone := c.original(e)
	var refused *topology.Error
	if gone != nil && !IsGone(gone) && !(errors.As(gone, &refused) && refused.Kind == topology.NotFound) {
		return s, gone
	}
	at, err := c.findDraft(e, archive)
	switch {
	case err != nil:
		return s, err
	case at.waits:
		return s, nil
	case at.draft == 0:
		if s.What = EditLost; at.original == 0 && gone == nil {
			s.What = EditNoDraft
		}
		return s, nil
	case at.original != 0:
		return c.sendEdit(ctx, e, archive, &at, o.from)
	case gone != nil:
		s.What = EditGone
		return s, c.dropDraft(ctx, archive, &at)
	case !o.Ready:
		return s, nil
	}
	own, _ := deadletter.Parse(o.History)
	p := e.park(e.ID, own, o.from.Decl, broker.Archive)
	h, _ := deadletter.Parse(p.history)
	h.Sent = false
	p.history = h.Append(nil)
	var r ErrandSlice
	err = c.carryOut(ctx, o.from.Runtime(), &e.Errand, []replayed{p}, archive.Runtime(), &r, func(told *Place) { s.Place = *told })
	switch {
	case err != nil:
		return s, o.from.Missing(err)
	case r.Moved == 1:
		s.What = EditArchived
	case r.Refused == 1:
		s.What = EditDropped
		err = c.dropDraft(ctx, archive, &at)
	}
	return s, err // otherwise it has just gone: the next step sees that
}

// draftOf is what a draft says of its original: the serial, which stays the same in every move, and which no other letter has that
// somebody puts into the archive.
func draftOf(original message.Record) string {
	return strconv.FormatUint(uint64(original.Serial()), 36)
}

// DropDraft ends an edit that somebody has cancelled. A draft whose original is in the archive stays there too.
func (c Client) DropDraft(ctx context.Context, e *Edit) error {
	archive, err := c.archive()
	if err != nil {
		return err
	}
	at, err := c.findDraft(e, archive)
	if err != nil || at.draft == 0 || at.original != 0 {
		return err
	}
	return c.dropDraft(ctx, archive, &at)
}

// dropDraft ends an edit that is not to be.
func (c Client) dropDraft(ctx context.Context, archive broker.QueueInfo, at *draftAt) error {
	_, err := c.node().Move(ctx, archive.Runtime(), []partition.Move{{ID: at.draft, History: at.history}})
	return archive.Missing(err)
}

// sendEdit moves the draft to where it is to go, or else to the queue of the original. from is that queue, zero if it is gone.
func (c Client) sendEdit(ctx context.Context, e *Edit, archive broker.QueueInfo, at *draftAt, from broker.QueueInfo) (s EditStep, err error) {
	o := Original{Record: at.record, History: at.history}
	try := func(e Edit) (done bool, err error) {
		source := cmp.Or(from.Decl, archive.Decl)
		p, ok := e.lead(&o, at.draft, at.record, source, LetterID(e.Archive, at.original))
		if !ok || e.Stay && from.Decl == nil {
			s.Place.Why = "nobody knows where it was first published"
			if e.Stay {
				s.Place.Why = "queue '" + string(e.Queue) + "' was deleted"
			}
			return false, nil
		}
		var r ErrandSlice
		err = c.carryOut(ctx, archive.Runtime(), &e.Errand, []replayed{p}, e.into(from), &r, func(told *Place) { s.Place = *told })
		return r.Moved == 1, archive.Missing(err)
	}
	done, err := try(*e)
	switch {
	case err != nil:
		return s, err
	case done:
		s.What = EditSent
		return s, nil
	case e.Stay:
		s.What = EditStuck
		return s, nil
	}
	why := s.Place
	stay := *e
	stay.Stay = true
	done, err = try(stay)
	if s.What = EditStuck; done {
		s.What = EditKept
	}
	s.Place = why
	return s, err
}
