package rescue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/store"
)

// examination is one look at a data directory.
type examination struct {
	fs     vfs.FS
	dir    string
	tree   *tree
	report *Report
	names  names

	cut           journal.Pos // where a start begins to read the journal
	log, stateLog journal.Inspection
	pages         []partition.LostPage
	messages      []broker.QueueMessages
}

// Examine says what is wrong with a stopped node's data directory, and what would be
// lost by a repair of that kind. Damage is in the report; an error means that nobody
// could look. REQUIRES: no node runs on it.
func Examine(files vfs.FS, dir string, how How) (*Report, error) {
	e, err := examine(files, dir, how)
	if err != nil {
		return nil, err
	}
	return e.report, nil
}

func examine(files vfs.FS, dir string, how How) (e *examination, err error) {
	if _, err := files.Stat(files.PathJoin(dir, journalDir)); err != nil {
		return nil, fmt.Errorf("%s is no data directory: %w", dir, err)
	}
	e = &examination{fs: files, dir: dir, report: &Report{Dir: dir, How: how}}
	if e.tree, err = newTree(files, dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.tree.remove()) }()
	for _, step := range []func() error{e.index, e.logs, e.kept, e.linkRest, e.recover} {
		if err := step(); err != nil {
			return nil, err
		}
		if e.report.Failed != "" {
			break // the next ones rest on it
		}
	}
	return e, nil
}

// found notes damage.
func (e *examination) found(d Damage) { e.report.Damages = append(e.report.Damages, d) }

// index reads the index: where the checkpoint ends, and the pages it names.
func (e *examination) index() error {
	if err := e.tree.addStore(indexDir); err != nil {
		return err
	}
	if err := e.tree.addStore(stateDir); err != nil {
		return err
	}
	index, err := store.OpenUnlogged(e.fs, e.fs.PathJoin(e.tree.to, indexDir), slog.New(slog.DiscardHandler), nil)
	if err == nil {
		e.cut, err = partition.CheckpointCut(index)
		if err == nil {
			e.pages, err = partition.VerifyPages(index)
		}
		if err == nil && len(e.pages) > 0 {
			err = partition.ForgetPages(index, e.pages)
		}
		err = errors.Join(err, index.Close())
	}
	if err != nil {
		e.found(Damage{File: e.fs.PathJoin(e.dir, indexDir), What: err.Error()})
		e.report.Failed = "the index cannot be read, and this cannot be repaired: restore a backup"
	}
	return nil
}

// logs reads both journals, all of them.
func (e *examination) logs() (err error) {
	path := e.fs.PathJoin(e.dir, stateLogDir)
	if e.stateLog, err = inspect(e.fs, path, 0, func(journal.Pos, []byte) error { return nil }); err != nil {
		return err
	}
	behind := tally{}
	first := journal.Pos(0) // of the first damage that a start meets
	path = e.fs.PathJoin(e.dir, journalDir)
	if e.log, err = inspect(e.fs, path, e.cut, func(journal.Pos, []byte) error { return nil }); err != nil {
		return err
	}
	for i := range e.log.Holes {
		if h := &e.log.Holes[i]; !h.Before {
			first = h.Pos()
			break
		}
	}
	if first != 0 { // again: now it is known what lies behind
		_, err = inspect(e.fs, path, e.cut, func(pos journal.Pos, payload []byte) error {
			if pos > first {
				e.count(payload, behind)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := e.tree.addLog(stateLogDir, &e.stateLog); err != nil {
		return err
	}
	if err := mend(e.fs, e.tree.to, stateLogDir, &e.stateLog, 0, e.report.How); err != nil {
		e.report.Failed = err.Error()
	} else if e.names, err = readNames(e.fs, e.tree.to); err != nil {
		e.found(Damage{File: e.fs.PathJoin(e.dir, stateDir), What: err.Error()})
		e.report.Failed = "the declarations cannot be read, and this cannot be repaired: restore a backup"
	}
	for i := range e.stateLog.Holes {
		d := damageOf(&e.stateLog.Holes[i])
		d.What += "; it held declarations"
		e.found(d)
	}
	for i := range e.log.Holes {
		h := &e.log.Holes[i]
		d := damageOf(h)
		if !h.Header {
			d.Held = e.held(h)
		}
		e.found(d)
	}
	for _, p := range e.pages {
		e.found(Damage{
			File: e.fs.PathJoin(e.dir, indexDir),
			What: fmt.Sprintf("page %d of level %d of queue %q, of up to 256 messages: %v", p.Number, p.Lane, e.names.of(p.Incarnation).Queue, p.Err),
		})
	}
	r := e.report
	r.Behind = behind.touched(e.names)
	r.Segments, r.Frames, r.TornBytes, r.End = len(e.log.Segments), e.log.Frames, e.log.TornBytes, e.log.End.String()
	return nil
}

// inspect is journal.Inspect of a directory that may not be there yet.
func inspect(files vfs.FS, path string, from journal.Pos, fn func(journal.Pos, []byte) error) (journal.Inspection, error) {
	if _, err := files.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return journal.Inspection{}, nil
	}
	return journal.Inspect(files, path, from, fn)
}

// count counts by queue what a frame does.
func (e *examination) count(payload []byte, c tally) {
	if !partition.IsFrame(payload) {
		e.report.Replicated = e.report.Replicated || len(payload) > 0
		return
	}
	_ = partition.ReadOperations(payload, func(o *partition.Operation) { // as far as it goes
		if o.Queue != 0 && o.Kind != "hash" {
			c[o.Queue] += int(o.Count)
		}
		for _, t := range o.Targets {
			c[t.Queue]++
		}
	})
}

// heldBytes is how much of a damaged frame is looked at.
const heldBytes = 1 << 20

// held guesses at what a damaged frame was about.
func (e *examination) held(h *journal.Hole) []Touched {
	f, err := e.fs.Open(h.File)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, min(heldBytes, h.To-h.From))
	n, err := f.ReadAt(b, h.From)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	c := tally{}
	if payload := journal.PayloadIn(b[:n]); partition.IsFrame(payload) {
		e.count(payload, c)
	}
	for incarnation := range c {
		if _, declared := e.names[incarnation]; !declared {
			delete(c, incarnation) // nonsense, more likely than not
		}
	}
	return c.touched(e.names)
}

// linkRest adds to the tree what recovery needs beside, and mends the journal in it.
func (e *examination) linkRest() error {
	if err := e.tree.addLog(journalDir, &e.log); err != nil {
		return err
	}
	if err := e.tree.add(keepDir, never, never); err != nil {
		return err
	}
	if err := mend(e.fs, e.tree.to, journalDir, &e.log, e.cut, e.report.How); err != nil {
		e.report.Failed = err.Error()
	}
	return nil
}

// recover starts a node on the tree, as far as it goes without serving anybody, and reads every
// message.
func (e *examination) recover() error {
	b, err := broker.OpenStopped(broker.Options{FS: e.fs, Dir: e.tree.to})
	if err != nil {
		e.report.Failed = err.Error()
		if e.report.How == SkipFrame && len(e.log.Holes) > 0 {
			e.report.Failed += "; what is behind the damage cannot do without it: try --cut"
		}
		return nil
	}
	e.messages, err = b.Verify()
	if err = errors.Join(err, b.Close()); err != nil {
		e.report.Failed = err.Error()
		return nil
	}
	for _, q := range e.messages {
		e.report.Queues++
		e.report.Messages += q.Messages
		if len(q.Unreadable) == 0 {
			continue
		}
		e.report.Unreadable = append(e.report.Unreadable, Touched{VHost: q.VHost, Queue: q.Queue, Messages: len(q.Unreadable)})
		for i, u := range q.Unreadable {
			if i == namedPlaces {
				break
			}
			e.found(Damage{File: e.fileOf(u.At), Offset: int64(u.At.Offset()), What: u.Err.Error(), Held: []Touched{{VHost: q.VHost, Queue: q.Queue, Messages: 1}}})
		}
	}
	return nil
}

// namedPlaces is how many unreadable messages of a queue are told one by one.
const namedPlaces = 10
