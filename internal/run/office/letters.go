package office

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
	"bartleby.mq/internal/run/partition"
)

// ParseLetterID reads an id, which letters.LetterID has written. A queue that is made anew has another incarnation.
func ParseLetterID(s string) (incarnation uint64, id queue.ID, ok bool) {
	first, second, _ := strings.Cut(s, ".")
	incarnation, err := strconv.ParseUint(first, 36, 64)
	n, err2 := strconv.ParseUint(second, 36, 64)
	id = queue.ID(n)
	return incarnation, id, err == nil && err2 == nil && letters.LetterID(incarnation, id) == s
}

// LettersRequest selects letters of one queue.
type LettersRequest struct {
	Query  letter.Query
	Oldest bool // in the order of the queue; otherwise against it
	Limit  int  // letters; 0: no limit
	Cursor string
	Reveal bool          // show letters as they are, and not as they are behind the mask
	By     string        // whose search it is: users share what searches may take
	Bytes  int64         // of messages to read; 0: no limit
	Answer int           // about how many bytes of rows are shown; 0: no limit
	Time   time.Duration // to look; 0: no limit
}

// LettersEnd says how far a look has come.
type LettersEnd struct {
	Next     *string `json:"next"` // the cursor to go on with; nil: that was all
	Examined int     `json:"examined"`
	Stopped  *string `json:"stopped"` // limit, bytes, answer or time; nil: that was all
}

// Row is a letter in a list.
type Row struct {
	ID          string            `json:"id"`
	VHost       message.VHost     `json:"vhost"`
	Queue       message.QueueName `json:"queue"`
	State       string            `json:"state"`
	Died        int64             `json:"died_ms"`
	Reason      string            `json:"reason"`
	Source      string            `json:"source"`
	TimesDied   uint64            `json:"times_died"`
	Exchange    string            `json:"exchange"`
	Keys        []string          `json:"routing_keys"`
	ErrorClass  string            `json:"error_class"`
	Error       string            `json:"error"`
	Type        string            `json:"type"`
	MessageID   string            `json:"message_id"`
	Size        int               `json:"size"`
	Priority    *uint8            `json:"priority"`
	Redelivered bool              `json:"redelivered"`
	Group       string            `json:"group"`
	Job         *string           `json:"job"`
	Replays     uint64            `json:"replays"`
	Lost        string            `json:"lost,omitempty"` // why it is in the lost and found: an outcome
	Preview     string            `json:"preview"`
	Masked      bool              `json:"masked"` // something is hidden
}

// lookSlice is how many messages are read in one hold of the queue, and lookTime for how long one looks at messages before others have
// their turn.
const lookSlice, lookTime = 256, 50 * time.Millisecond

// look waits until a user may look at letters. The caller asks within after each letter, whatever it has found there, and looks at no other once
// that is false: the turn is over. It calls done then, before it waits for anything else.
func (f *Office) look(ctx context.Context, user string) (within func() bool, done func(), err error) {
	return f.lookOf(ctx, "user "+user)
}

// lookOf is look for any owner of turns.
func (f *Office) lookOf(ctx context.Context, owner string) (within func() bool, done func(), err error) {
	if !f.looks.Begin(owner, ctx.Done(), f.life.Done()) {
		return nil, nil, cmp.Or(ctx.Err(), f.life.Err())
	}
	return f.within(), f.looks.End, nil
}

// within returns what says whether a look that begins now has time for more.
func (f *Office) within() func() bool {
	if f.timeUp != nil {
		return func() bool { return !f.timeUp() }
	}
	began := time.Now()
	return func() bool { return time.Since(began) < lookTime }
}

// Letters calls row for each letter of the queue that the query selects, and progress, which may be nil, with how many entries
// it has looked at, of about how many. It ends when row returns false.
func (f *Office) Letters(ctx context.Context, q broker.QueueInfo, r LettersRequest, row func(*Row) bool, progress func(examined, total int)) (end LettersEnd, err error) {
	e, err := letters.Extent(f.b, q)
	if err != nil {
		return end, gone(q, err)
	}
	w := walk{f: f, q: q, e: e, oldest: r.Oldest, cursor: e.There}
	if err := w.start(r.Cursor); err != nil {
		return end, err
	}
	mask := f.maskOf(q, r.Reveal)
	if name := r.Query.Asks(mask); name != "" {
		return end, &Error{Forbidden, fmt.Sprintf("filter '%s' would tell what the masks of vhost '%s' hide; it needs reveal=true (--reveal), and the tag reveal", name, q.Decl.VHost)}
	}
	reader := letter.NewReader(f.Names).Masked(mask)
	began, bytes, found, answer := time.Now(), int64(0), 0, 0
	var last queue.ID
	stop := ""
	for more := true; more && stop == ""; {
		within, done, err := f.look(ctx, r.By)
		if err != nil {
			return end, err
		}
		more, err = w.next(ctx, func(v queue.View, rec message.Record, history []byte) bool {
			last = v.ID
			end.Examined++
			bytes += int64(len(rec))
			if l, ok := reader.Read(rec, history); ok && r.Query.Match(l) {
				found++
				made := makeRow(q, &v, l)
				answer += made.size()
				if !row(&made) {
					stop = "limit"
				}
			}
			switch {
			case stop != "":
			case r.Limit > 0 && found >= r.Limit:
				stop = "limit"
			case r.Bytes > 0 && bytes >= r.Bytes:
				stop = "bytes"
			case r.Answer > 0 && answer >= r.Answer:
				stop = "answer"
			case r.Time > 0 && time.Since(began) >= r.Time:
				stop = "time"
			}
			return stop == "" && within()
		})
		done()
		if err != nil {
			return end, gone(q, err)
		}
		if progress != nil {
			progress(end.Examined, max(e.Entries, end.Examined))
		}
	}
	if stop != "" {
		next := letters.LetterID(q.Incarnation(), last)
		end.Next, end.Stopped = &next, &stop
	}
	return end, nil
}

// maskOf is the mask of a queue's letters, nil if they are shown as they are.
func (f *Office) maskOf(q broker.QueueInfo, reveal bool) *letter.Mask {
	if reveal {
		return nil
	}
	return f.masks.Mask(string(q.Decl.VHost))
}

// gone translates the error of a queue that was deleted meanwhile.
func gone(q broker.QueueInfo, err error) error {
	if partition.Gone(err) {
		return topology.NoQueue(q.Decl.VHost, q.Decl.Name)
	}
	return err
}

// walk goes through the entries that were in a queue at one moment: in the queue's order, which is by level, highest first,
// and number, or against it.
type walk struct {
	f      *Office
	q      broker.QueueInfo
	e      partition.Extent
	oldest bool
	cursor queue.Cursor // of the queue's order

	// Against it: what is below end of the level is still to be seen; span is how many numbers are looked at together.
	level int
	end   uint64
	span  uint64
}

func (w *walk) start(cursor string) error {
	w.span = lookSlice
	ends := w.e.There.Ends()
	if len(ends) > 0 {
		w.end = ends[0]
	}
	if cursor == "" {
		return nil
	}
	incarnation, id, ok := ParseLetterID(cursor)
	switch {
	case !ok || id.Lane() >= len(ends):
		return topology.Refuse(topology.PreconditionFailed, "cursor '%s' is none; it must be next of the page before", cursor)
	case incarnation != w.q.Incarnation():
		return topology.Refuse(topology.PreconditionFailed, "cursor '%s' is of another queue, or of an earlier one with this name", cursor)
	}
	w.cursor = w.e.There.Behind(id)
	w.level, w.end = id.Lane(), id.Seq()
	return nil
}

// next shows the next slice, as far as show returns true, and says whether there is more.
func (w *walk) next(ctx context.Context, show letters.Show) (more bool, err error) {
	if w.oldest {
		next, done, err := letters.Browse(ctx, w.f.b, w.q, w.cursor, lookSlice, show)
		w.cursor = next
		return !done, err
	}
	ends := w.e.There.Ends()
	for w.level < len(ends) {
		if w.end == 0 {
			if w.level++; w.level < len(ends) {
				w.end = ends[w.level]
			}
			continue
		}
		begin := w.end - min(w.end, w.span)
		ids, whole, err := w.idsBetween(begin, w.end)
		if err != nil {
			return false, err
		}
		if !whole { // more than lookSlice: there is no gap
			w.span = max(lookSlice, w.span/4)
			continue
		}
		w.end = begin
		if len(ids) == 0 {
			w.span = min(4*w.span, 1<<40) // a gap, which may be very long
			continue
		}
		slices.Reverse(ids)
		return true, letters.Look(ctx, w.f.b, w.q, ids, func(v queue.View, r message.Record, history []byte) bool {
			if show(v, r, history) {
				return true
			}
			w.end = v.ID.Seq() // the others come next
			return false
		})
	}
	return false, nil
}

// idsBetween are the entries of the level with numbers from begin to end. whole is false if there are more than lookSlice.
func (w *walk) idsBetween(begin, end uint64) (ids []queue.ID, whole bool, err error) {
	whole = true
	_, _, err = letters.Glance(w.f.b, w.q, w.e.There.At(w.level, begin), lookSlice+1, func(v queue.View) bool {
		if v.ID.Lane() != w.level || v.ID.Seq() >= end {
			return false
		}
		whole = len(ids) < lookSlice
		if whole {
			ids = append(ids, v.ID)
		}
		return whole
	})
	return ids, whole, err
}

func makeRow(q broker.QueueInfo, v *queue.View, l *letter.Letter) Row {
	c, k := l.Cause(), l.Group()
	shown, masked := previewOf(l)
	exchange, keys := l.Origin()
	r := Row{
		ID: letters.LetterID(q.Incarnation(), v.ID), VHost: q.Decl.VHost, Queue: q.Decl.Name, State: state(v), Died: l.Died, Reason: l.Reason().String(), Source: l.Source(),
		TimesDied: l.TimesDied(), Exchange: exchange, Keys: slices.Clone(keys), ErrorClass: c.Class, Error: c.Error, Type: l.Type(), MessageID: l.MessageID(),
		Size: l.Record.BodySize(), Redelivered: v.Redelivered, Group: k.ID(string(q.Decl.VHost)).String(), Preview: shown, Masked: masked || l.IsMasked(),
	}
	if r.Keys == nil {
		r.Keys = []string{}
	}
	r.Replays = l.History.Replays
	if why := l.History.Lost; why != deadletter.Routed {
		r.Lost = why.String()
	}
	if l.History.Job != 0 {
		r.Job = new(strconv.FormatUint(l.History.Job, 10))
	}
	if p, ok := l.Record.Priority(); ok {
		r.Priority = &p
	}
	return r
}

// size is about how many bytes the row has in an answer.
func (r *Row) size() int {
	const names = 600 // of fields, with what is short
	n := names + len(r.Queue) + len(r.Source) + len(r.Exchange) + len(r.ErrorClass) + len(r.Error) + len(r.Type) + len(r.MessageID) + len(r.Preview)
	for _, key := range r.Keys {
		n += len(key) + 3
	}
	return n
}

func state(v *queue.View) string {
	switch {
	case v.Out:
		return "out"
	case v.Dead || v.Offered:
		return "moving"
	case v.NotBefore != 0:
		return "waiting"
	}
	return "ready"
}

// previewBytes is how much of a body a list shows.
const previewBytes = 100

// preview is the beginning of a body as one line of text, "" if it is no text.
func preview(body []byte) string {
	b := body[:min(len(body), previewBytes)]
	for n := 0; n < utf8.UTFMax-1 && len(b) < len(body) && len(b) > 0 && !utf8.Valid(b); n++ {
		b = b[:len(b)-1] // it was cut within a character
	}
	if !utf8.Valid(b) {
		return ""
	}
	return strings.Join(strings.FieldsFunc(string(b), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// maxPreviewed is how long a body may be of which a list shows the beginning behind a mask: all of it must be read for that.
const maxPreviewed = 16 << 10

// previewOf is the preview of a letter behind its mask.
func previewOf(l *letter.Letter) (shown string, masked bool) {
	mask := l.Mask()
	if !mask.HidesBodies() {
		body, _, _ := l.Text(previewBytes + utf8.UTFMax)
		return preview(body), false
	}
	body, _, cut := l.Text(maxPreviewed)
	if cut || len(body) > maxPreviewed {
		return letter.Hidden, true
	}
	hidden, masked := mask.Body(body)
	return mask.Text(preview(hidden)), masked
}

// Stop is a place at which a letter died.
type Stop struct {
	Queue      string   `json:"queue"`
	Reason     string   `json:"reason"`
	Count      uint64   `json:"count"`
	First      int64    `json:"first_ms"`
	Last       int64    `json:"last_ms"`
	Exchange   string   `json:"exchange"`
	Keys       []string `json:"routing_keys"`
	Expiration *int64   `json:"expiration_ms"`
	Earlier    bool     `json:"earlier"` // before the last replay, or before a client published the message, by its word
}

// Whole is all of one letter.
type Whole struct {
	Row
	Timeline   []Stop
	RejectedBy deadletter.Cause
	Cause      letter.Cause
	Properties []byte // raw, with headers, as a consumer would get them
	Body       []byte // the first part
	Cut        bool   // there is more
	Section    string // "" if the body is data; otherwise Body is the text of what it is: convert.BodyText
	Replay     letters.Forecast
	From       string // deadletter.Marks.From
	EditedFrom string // deadletter.Marks.EditedFrom
	// ReplayedFrom is the queue that the last replay took it from, "" if it was never replayed; OlderHeaders: its headers tell of an error of
	// before that, which is not why it died.
	ReplayedFrom string
	OlderHeaders bool
	Mask         *letter.Mask // behind which all of it is shown, but the properties
}

// ErrGone and ErrNever say why there is no letter with an id.
var (
	ErrGone  = errors.New("the letter has left the queue")
	ErrNever = errors.New("no letter of the queue has ever had this id")
)

// find calls show with the letter, or returns why it is not there.
func (f *Office) find(q broker.QueueInfo, text string, mask *letter.Mask, show func(queue.View, *letter.Letter, []byte)) error {
	incarnation, id, ok := ParseLetterID(text)
	switch {
	case !ok || incarnation > q.Incarnation():
		return ErrNever
	case incarnation < q.Incarnation():
		return ErrGone // incarnations rise: it was in a queue before this one, if anywhere
	}
	there, isLetter := false, false
	err := letters.Look(f.life, f.b, q, []queue.ID{id}, func(v queue.View, r message.Record, history []byte) bool {
		there = true
		var l *letter.Letter
		if l, isLetter = letter.NewReader(f.Names).Masked(mask).Read(r, history); isLetter {
			show(v, l, history)
		}
		return true
	})
	switch {
	case err != nil:
		return gone(q, err)
	case isLetter:
		return nil
	case there:
		return ErrNever // a message that has not died
	}
	e, err := letters.Extent(f.b, q)
	if err != nil {
		return gone(q, err)
	}
	if ends := e.There.Ends(); id.Lane() < len(ends) && id.Seq() < ends[id.Lane()] {
		return ErrGone
	}
	return ErrNever
}

// Letter returns all of one letter, with the first bodyBytes of its body: as it is, or as it is behind the mask. as is the client, who may read
// the queue.
func (f *Office) Letter(as *broker.Connection, q broker.QueueInfo, id string, bodyBytes int, reveal bool) (w Whole, err error) {
	var rec message.Record
	var stored []byte
	mask := f.maskOf(q, reveal)
	w.Mask = mask
	err = f.find(q, id, mask, func(v queue.View, l *letter.Letter, history []byte) {
		w.Row, w.Cause, w.RejectedBy = makeRow(q, &v, l), l.WholeCause(), l.History.Cause
		w.From, w.EditedFrom, w.OlderHeaders = l.History.From, l.History.EditedFrom, l.HeadersAreOlder()
		if !l.Parked {
			w.ReplayedFrom = l.Place(l.History.ReplayedFrom)
		}
		w.Properties, _, _ = broker.Rendered(l.Record, history, v.Counts, q.Quorum())
		w.Timeline = timeline(l)
		limit := bodyBytes
		if mask.HidesBodies() {
			limit = letter.MaxMasked // all of it must be read
		}
		text, section, cut := l.Text(limit)
		body, hidden := text, false
		if cut && mask.HidesBodies() {
			body, hidden, cut = []byte(letter.Hidden), true, false
		} else {
			body, hidden = mask.Body(text)
		}
		w.Masked, w.Section = w.Masked || hidden, section
		if c := l.History.Cause; mask != nil {
			by := &w.RejectedBy
			by.ConsumerTag, by.Connection, by.Name, by.User, by.Product, by.Version = mask.Text(c.ConsumerTag), mask.Text(c.Connection), mask.Text(c.Name), mask.Text(c.User), mask.Text(c.Product), mask.Text(c.Version)
		}
		w.Cut = cut || len(body) > bodyBytes
		w.Body = slices.Clone(body[:min(len(body), bodyBytes)])
		rec, stored = slices.Clone(l.Record), slices.Clone(history)
	})
	if err != nil {
		return w, err
	}
	w.Replay, err = letters.As(as).Forecast(q, rec, stored)
	w.Replay.Exchange, w.Replay.Keys, w.Replay.Problem = mask.Text(w.Replay.Exchange), mask.Texts(w.Replay.Keys), mask.Text(w.Replay.Problem)
	return w, err
}

// Body returns the body of a letter, of a value of AMQP 1.0 the text, and whether something in it is hidden.
func (f *Office) Body(q broker.QueueInfo, id string, reveal bool) (body []byte, died int64, masked bool, err error) {
	mask := f.maskOf(q, reveal)
	err = f.find(q, id, mask, func(_ queue.View, l *letter.Letter, _ []byte) {
		text, _, _ := l.Text(letter.WholeText(l.Record))
		shown, hidden := mask.Body(text)
		body, died, masked = slices.Clone(shown), l.Died, hidden
	})
	return body, died, masked, err
}

// timeline are the deaths of a letter, the last one first; those before a replay, and before a client published it, come last.
func timeline(l *letter.Letter) []Stop {
	stops := appendStops([]Stop{}, l, l.History.Deaths, l.Parked)
	stops = appendStops(stops, l, l.History.Earlier, true)
	if h, ok := deadletter.Carried(l.Props().Headers); ok && !l.Parked {
		stops = appendStops(stops, l, h.Deaths, true)
	}
	return stops
}

func appendStops(stops []Stop, l *letter.Letter, deaths []deadletter.Death, earlier bool) []Stop {
	for i := range deaths {
		d := &deaths[i]
		s := Stop{
			Queue: l.Place(d.Queue), Reason: d.Reason.Counted().String(), Count: d.Count, First: d.First, Last: d.Last, Exchange: l.Mask().Text(d.Exchange),
			Keys: slices.Clone(l.Mask().Texts(d.Keys)), Earlier: earlier,
		}
		if s.Keys == nil {
			s.Keys = []string{}
		}
		if d.Expiration >= 0 {
			s.Expiration = new(d.Expiration)
		}
		stops = append(stops, s)
	}
	return stops
}
