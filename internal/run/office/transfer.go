package office

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/letters"
)

// transferBytes is how many bytes of messages an export or an import has in memory at a time, or one message.
const transferBytes = 4 << 20

// sectionsOf are what the protocol of a message has around its body, nil if it came by AMQP 0-9-1.
func sectionsOf(rec message.Record) *message.Sections {
	if !rec.HasSections() {
		return nil
	}
	s := rec.Sections()
	return &s
}

// Export calls line with each letter of the queue that the query selects, the front of the queue first, until line returns an error,
// and returns that. What was there when it began is exported; the bytes are valid only during the call. Users take turns with by, whose export it is.
func (f *Office) Export(ctx context.Context, q broker.QueueInfo, by string, query *letter.Query, line func([]byte) error) (exported int, err error) {
	e, err := letters.Extent(f.b, q)
	if err != nil {
		return 0, gone(q, err)
	}
	reader := letter.NewReader(f.Names)
	var lines [][]byte // of a slice: line may wait for a client, and is called when others have their turn
	take := func(v *queue.View, rec message.Record, history []byte) {
		h, _ := deadletter.Parse(history)
		l, ok := reader.Read(rec, history)
		if !ok || h.Draft || !query.Match(l) {
			return
		}
		b, failed := letter.AppendLine(nil, &letter.Line{
			ID: letters.LetterID(q.Incarnation(), v.ID), VHost: string(q.Decl.VHost), Queue: string(q.Decl.Name), Exchange: string(rec.Exchange()), Key: string(rec.Key()),
			BCC: rec.BCC(), Properties: rec.Properties(), Sections: sectionsOf(rec), Body: rec.Body(), History: history,
		})
		lines, err = append(lines, b), failed
	}
	cursor := e.There
	for done := false; !done; {
		within, over, noTurn := f.look(ctx, by)
		if noTurn != nil {
			return exported, noTurn
		}
		var ids []queue.ID
		size := 0
		next, end, failed := letters.Glance(f.b, q, cursor, lookSlice, func(v queue.View) bool {
			ids = append(ids, v.ID)
			size += int(v.Size)
			return size < transferBytes
		})
		if failed == nil {
			failed = letters.Look(ctx, f.b, q, ids, func(v queue.View, rec message.Record, history []byte) bool {
				take(&v, rec, history)
				if within() && err == nil {
					return true
				}
				next, end = cursor.Behind(v.ID), false // the others come next
				return false
			})
		}
		over()
		for _, b := range lines {
			if err != nil {
				break
			}
			exported++
			err = line(b)
		}
		clear(lines)
		lines = lines[:0]
		switch {
		case err != nil:
			return exported, err
		case failed != nil:
			return exported, gone(q, failed)
		}
		cursor, done = next, end
	}
	return exported, nil
}

// Imported is the result of an import.
type Imported struct {
	Imported int           `json:"imported"`
	Refused  []RefusedLine `json:"refused"`
	More     int           `json:"refused_more,omitempty"` // refused lines that are not named
}

// RefusedLine is a line that was not imported.
type RefusedLine struct {
	Line int    `json:"line"` // the first is 1
	Why  string `json:"why"`
}

// maxRefused is how many refused lines an import names.
const maxRefused = 1000

func (r *Imported) refuse(line int, why string) {
	if len(r.Refused) < maxRefused {
		r.Refused = append(r.Refused, RefusedLine{line, why})
	} else {
		r.More++
	}
}

// ErrAlarm says that an import has ended because the node is short of something.
var ErrAlarm = errors.New("the node accepts no messages")

// Import puts the letters of an export into a queue, in their order. It ends with what it has imported when ctx ends, the reader
// fails, or the node is short of memory or disk.
func (f *Office) Import(ctx context.Context, to *letters.Importer, lines io.Reader, maxMessage int) (r Imported, err error) {
	r.Refused = []RefusedLine{}
	in := bufio.NewReaderSize(lines, 64<<10)
	most := 2*maxMessage + 16<<20
	var list []letters.Import
	var numbers []int
	size := 0
	put := func() error {
		if len(list) == 0 {
			return nil
		}
		if f.b.Alarmed() {
			why, _ := f.b.Alarms()
			return fmt.Errorf("%w: it is %s", ErrAlarm, why)
		}
		err := to.Put(ctx, list)
		for i := range list {
			switch {
			case err != nil:
			case list[i].Why != "":
				r.refuse(numbers[i], list[i].Why)
			default:
				r.Imported++
			}
		}
		list, numbers, size = list[:0], numbers[:0], 0
		return err
	}
	var line []byte
	for n := 1; ; n++ {
		var whole bool
		line, whole, err = readLine(in, line[:0], most)
		if err != nil && !errors.Is(err, io.EOF) {
			return r, err
		}
		end := err != nil
		switch {
		case !whole:
			r.refuse(n, fmt.Sprintf("the line has more than %d bytes", most))
		case len(bytes.TrimSpace(line)) > 0:
			l, bad := letter.ParseLine(line)
			if bad != nil {
				r.refuse(n, bad.Error())
				break
			}
			list, numbers = append(list, letters.Import{Exchange: l.Exchange, Key: l.Key, BCC: l.BCC, Properties: l.Properties, Sections: l.Sections, Body: l.Body, History: l.History}), append(numbers, n)
			size += len(line)
		}
		if size >= transferBytes || len(list) >= jobSlice || end {
			if err := put(); err != nil {
				return r, err
			}
		}
		switch {
		case end:
			return r, nil
		case ctx.Err() != nil:
			return r, ctx.Err()
		}
	}
}

// readLine appends the next line to b. whole is false if it has more than most bytes: the rest of it is passed over.
func readLine(in *bufio.Reader, b []byte, most int) (_ []byte, whole bool, err error) {
	whole = true
	for {
		part, err := in.ReadSlice('\n')
		if len(b)+len(part) > most {
			whole = false
		} else if whole {
			b = append(b, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return b, whole, err
		}
	}
}
