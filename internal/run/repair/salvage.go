package repair

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/disk/bodyfile"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/partition"
)

// Salvaged is what the repair brings back if the index is lost; see partition.Salvage.
type Salvaged struct {
	Queues []SalvagedQueue `json:"queues"`
	// Apart counts messages whose queue is unknown; they go to ApartQueue in ApartVHost.
	Apart      int    `json:"apart"`
	ApartVHost string `json:"apart_vhost,omitempty"`
	ApartQueue string `json:"apart_queue,omitempty"`
	// Surplus counts messages in Apart whose queue is known and over its limit.
	Surplus int `json:"surplus"`
	// Deleted counts messages of deleted queues. They are not brought back.
	Deleted int `json:"of_deleted_queues"`
	// Settled counts the returning messages that may have been settled before.
	Settled int `json:"may_be_settled"`
}

// SalvagedQueue is a queue and the messages that it gets.
type SalvagedQueue struct {
	Touched
	Settled int `json:"may_be_settled"`
}

// salvage returns the places where opening a directory finds messages.
func (e *examination) salvage(dir string) *partition.Salvage {
	keep := e.fs.PathJoin(dir, keepDir)
	return &partition.Salvage{
		Retired: func(f func(journal.Pos, []byte) error) (damaged uint32, err error) {
			in, err := journal.Inspect(e.fs, keep, 0, f)
			for i := range in.Holes {
				damaged = max(damaged, in.Holes[i].Segment)
			}
			return damaged, err
		},
		Dense: func(f func(message.Location, message.Record) error) error {
			files, err := e.filesOf(keep, bodyfile.Dense)
			for _, file := range files {
				if err == nil {
					_, err = eachDense(e.fs, e.fs.PathJoin(keep, file.Name()), func(offset int64, r message.Record) error {
						return f(message.MakeLocation(message.InKeep, file.Number, uint32(offset)), r)
					}, func(int64, error) bool { return true })
				}
			}
			return err
		},
	}
}

// filesOf lists the files of a kind in a keep, in order; none if there is no keep.
func (e *examination) filesOf(keep string, kind bodyfile.Kind) ([]bodyfile.File, error) {
	files, err := bodyfile.Files(e.fs, keep)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(files, func(f bodyfile.File) bool { return f.Kind != kind }), err
}

// retired notes damage in the segments of the keep. A start does not read their frames, but without an index they are the
// only source.
func (e *examination) retired() error {
	if !e.salvaging {
		return nil
	}
	in, err := journal.Inspect(e.fs, e.fs.PathJoin(e.dir, keepDir), 0, func(journal.Pos, []byte) error { return nil })
	if err != nil {
		return err
	}
	for i := range in.Holes {
		h := &in.Holes[i]
		if _, err := e.fs.Stat(h.File); err != nil {
			continue // it was freed, or is a part of the journal
		}
		d := damageOf(h)
		if !h.Header {
			d.Held = e.held(h)
		}
		e.found(d)
	}
	return nil
}

// behindKept returns where a journal that is lost together with the index continues: after the segments in the keep,
// whose numbers are the places of records. It is 0 if the journal is not lost.
func (e *examination) behindKept() (journal.Pos, error) {
	if !e.salvaging || !e.lacks(journalDir) {
		return 0, nil
	}
	retired, err := e.filesOf(e.fs.PathJoin(e.dir, keepDir), bodyfile.Retired)
	if err != nil || len(retired) == 0 {
		return 0, err
	}
	newest := retired[len(retired)-1].Number
	return journal.MakePos(newest+1, journal.FirstFrame), nil
}

// repairJournal makes the journal of a directory readable. A journal that is lost together with the index starts anew;
// there is nothing to cut.
func (e *examination) repairJournal(dir string) error {
	how := e.report.How
	if e.behind != 0 {
		how = SkipFrame
	}
	return repairLog(e.fs, dir, journalDir, &e.log, e.cut, how)
}

// salvaged notes the messages that came back.
func (e *examination) salvaged(found *partition.Salvaged, names names) {
	s := &Salvaged{Apart: found.Into, Surplus: found.Surplus, Deleted: found.Deleted, Settled: found.Into}
	if s.Apart > 0 {
		s.ApartVHost, s.ApartQueue = repairedVHost, repairedQueue
	}
	for _, q := range found.Queues {
		t := names.of(q.Incarnation)
		t.Messages = q.Messages
		s.Queues = append(s.Queues, SalvagedQueue{t, q.Unsure})
		s.Settled += q.Unsure
	}
	slices.SortFunc(s.Queues, func(a, b SalvagedQueue) int {
		return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Queue, b.Queue))
	})
	e.report.Salvaged = s
}

// write writes the counts.
func (s *Salvaged) write(p *printer) {
	all := s.Apart
	for _, q := range s.Queues {
		all += q.Messages
	}
	p.line("WITHOUT THE INDEX a repair brings back %d messages that are on disk. %d of them may have been settled already and will be", all, s.Settled)
	p.line("  delivered again. A message that was dead-lettered or moved may be back in the queue that it had left")
	for _, q := range s.Queues {
		if q.Settled == 0 {
			p.line("  %s, none of them settled", q.Touched)
			continue
		}
		p.line("  %s, of which %d may have been settled", q.Touched, q.Settled)
	}
	if s.Apart > 0 {
		p.line("  queue %q in vhost %q: %d messages whose queue is unknown, or that may have moved elsewhere. Each may have been settled", s.ApartQueue, s.ApartVHost, s.Apart)
	}
	if s.Surplus > 0 {
		p.line("    of these, %d belong to a queue that is over its limit and would drop them", s.Surplus)
	}
	if s.Deleted > 0 {
		p.line("  not brought back: %d messages that were deleted with their queues", s.Deleted)
	}
}
