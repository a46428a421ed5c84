package repair

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/partition"
)

// examination is one examination of a data directory.
type examination struct {
	fs     vfs.FS
	dir    string
	tree   *tree
	report *Report
	names  names

	onFatal func(error) // for stores

	cut           journal.Pos // position from which a start reads the journal
	behind        journal.Pos // position at which a journal that is lost with the index continues; 0: it is not lost
	log, stateLog journal.Inspection
	pages         []partition.LostPage
	missing       []string // parts of the directory that are missing, empty or broken
	broken        []string // parts with damaged tables: they are moved away and treated as missing
	incomplete    bool     // it is not whole
	undeclared    bool     // declarations may be missing: queues that have messages come back
	noStateLog    bool     // the log of declarations is useless: the tables that it continues are gone
	apart         bool     // the index is given up, though it is whole
	salvaging     bool     // the index is lost, and the journal does not have everything
	messages      []broker.QueueMessages
}

// Examine reports the damage in a stopped node's data directory and what a repair of the
// given kind would lose. An error means that the directory could not be examined.
// REQUIRES: no node runs on it.
func Examine(files vfs.FS, dir string, how How) (*Report, error) {
	return guarded(files, dir, func(onFatal func(error)) (*Report, error) {
		e, err := examine(files, dir, how, onFatal)
		if err != nil {
			return nil, err
		}
		return e.report, nil
	})
}

// examine examines the directory. Where intact frames depend on lost ones, so that a start cannot read them, it tries again
// without the index: then every message comes back that is on disk.
func examine(files vfs.FS, dir string, how How, onFatal func(error)) (*examination, error) {
	e, err := examineOnce(files, dir, how, onFatal, false)
	if err != nil || !e.report.TryCut || e.salvaging {
		return e, err
	}
	without, err := examineOnce(files, dir, how, onFatal, true)
	if err != nil || without.report.Failed != "" {
		return e, err
	}
	return without, nil
}

// examineOnce examines the directory, without its index if apart says so.
func examineOnce(files vfs.FS, dir string, how How, onFatal func(error), apart bool) (e *examination, err error) {
	if !slices.ContainsFunc(datadir.Parts, func(part string) bool { _, err := files.Stat(files.PathJoin(dir, part)); return err == nil }) {
		return nil, fmt.Errorf("%s is not a data directory", dir)
	}
	tree, err := newTree(files, dir)
	defer func() { err = errors.Join(err, tree.remove()) }() // also if there was no disk space for it
	if err != nil {
		return nil, err
	}
	e = &examination{fs: files, dir: dir, tree: tree, onFatal: onFatal, apart: apart, report: &Report{Dir: dir, How: how}}
	for _, step := range []func() error{e.parts, e.tables, e.index, e.logs, e.kept, e.retired, e.linkRest, e.recover} {
		if err := step(); err != nil {
			return nil, err
		}
		if e.report.Failed != "" {
			break // the next steps need this one
		}
	}
	e.markRestorable()
	return e, nil
}

// markRestorable marks the damage of a lost index as restorable if the journal has all of its content.
func (e *examination) markRestorable() {
	if !e.lacks(indexDir) || e.salvaging || len(e.log.Holes) > 0 {
		return
	}
	index := e.fs.PathJoin(e.dir, indexDir)
	for i := range e.report.Damages {
		d := &e.report.Damages[i]
		if what, ok := strings.CutSuffix(d.What, lostWith[indexDir]); ok && (d.File == index || e.fs.PathDir(d.File) == index) {
			d.What, d.Restorable = what+": the journal has all of its content, so nothing is lost", true
		}
	}
}

// found notes damage.
func (e *examination) found(d Damage) { e.report.Damages = append(e.report.Damages, d) }

// parts finds missing parts of the data directory.
func (e *examination) parts() error {
	_, err := datadir.CheckWhole(e.fs, e.dir)
	var incomplete *datadir.IncompleteError
	if err == nil {
		return nil
	}
	if !errors.As(err, &incomplete) {
		return err
	}
	for _, part := range incomplete.Foreign {
		e.found(Damage{File: e.fs.PathJoin(e.dir, part), What: "it belongs to another data directory"})
		e.report.Failed = "put the right parts in place. If you know that a part belongs to this directory, remove its file \"identity\". " +
			"If the right part is gone for good, move the wrong one away: the repair makes a missing part anew, and what was in it is lost"
	}
	for _, part := range incomplete.Unnamed {
		e.found(Damage{File: e.fs.PathJoin(e.dir, part), What: "its identity is damaged or missing, so it does not say which data directory it belongs to. The repair takes it for a part of this one; nothing in it is lost", Restorable: true})
	}
	for _, part := range incomplete.Missing {
		e.missing = append(e.missing, part)
		e.found(Damage{File: e.fs.PathJoin(e.dir, part), What: "it is missing or empty" + lostWith[part]})
	}
	e.incomplete = true
	if e.lacks(indexDir) {
		if err := e.withoutIndex(); err != nil {
			return err
		}
	}
	e.undeclared = e.lacks(stateDir) || e.lacks(stateLogDir)
	return nil
}

// withoutIndex decides how to replace a lost index. If the journal has everything, a start can make the index from it.
// Otherwise the repair brings back all messages on disk, see partition.Salvage; a plain start would remove the files in
// which it knows no message.
func (e *examination) withoutIndex() error {
	kept, err := e.fs.List(e.fs.PathJoin(e.dir, keepDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	log, err := journal.Inspect(e.fs, e.fs.PathJoin(e.dir, journalDir), 0, func(journal.Pos, []byte) error { return nil })
	if err != nil {
		return err
	}
	whole := len(log.Segments) > 0 && log.Segments[0].Number == 1
	for _, file := range kept {
		whole = whole && !strings.HasSuffix(file, ".seg") && !strings.HasSuffix(file, ".keep")
	}
	e.salvaging = !whole
	return nil
}

// lostWith names what is lost with each part.
var lostWith = map[string]string{
	journalDir:  ": everything since the last checkpoint is lost, including the messages that came since",
	keepDir:     ": messages older than the journal are lost",
	indexDir:    ": the record of which older messages are in which queue is lost",
	stateDir:    ": queues, users and policies are lost",
	stateLogDir: ": the latest declarations are lost",
}

func (e *examination) lacks(part string) bool { return slices.Contains(e.missing, part) }

// tables reads all tables of the index and of the declarations. Pebble needs every table, so a part with a damaged
// table counts as lost.
func (e *examination) tables() error {
	for _, part := range []string{indexDir, stateDir} {
		if e.lacks(part) {
			continue
		}
		if err := e.tree.addStore(part); err != nil {
			return err
		}
		err := store.Check(e.fs, e.fs.PathJoin(e.tree.to, part))
		var damage *store.DamageError
		if err == nil {
			continue
		}
		if !errors.As(err, &damage) {
			return err
		}
		if err := e.damaged(part, damage); err != nil {
			return err
		}
	}
	return nil
}

// damaged notes damage of a store and treats its part as missing.
func (e *examination) damaged(part string, err error) error {
	d := Damage{File: e.fs.PathJoin(e.dir, part), What: err.Error()}
	var damage *store.DamageError
	if errors.As(err, &damage) {
		d.What = damage.Reason
		if name := e.fs.PathBase(damage.File); name != part {
			d.File = e.fs.PathJoin(d.File, name)
		}
	}
	d.What = strings.ReplaceAll(d.What, e.tree.to, e.dir) + ": all of " + part + "/ is given up" + lostWith[part]
	e.found(d)
	return e.giveUp(part)
}

// giveUp treats a part as missing.
func (e *examination) giveUp(part string) error {
	if err := e.fs.RemoveAll(e.fs.PathJoin(e.tree.to, part)); err != nil {
		return err
	}
	e.broken, e.missing, e.incomplete = append(e.broken, part), append(e.missing, part), true
	if part == stateDir {
		e.undeclared = true
		return nil
	}
	return e.withoutIndex()
}

// index reads the index: the end of the checkpoint, and its pages.
func (e *examination) index() error {
	index, err := store.OpenUnlogged(e.fs, e.fs.PathJoin(e.tree.to, indexDir), slog.New(slog.DiscardHandler), e.onFatal)
	if err == nil {
		e.cut, err = partition.CheckpointCut(index)
		if err == nil {
			e.pages, err = partition.VerifyPages(index)
		}
		if err == nil && len(e.pages) > 0 {
			err = partition.DropPages(index, e.pages)
		}
		err = errors.Join(err, index.Close())
	}
	if store.IsDamage(err) && !e.lacks(indexDir) {
		e.cut, e.pages = 0, nil
		return e.damaged(indexDir, err)
	}
	if err != nil {
		e.found(Damage{File: e.fs.PathJoin(e.dir, indexDir), What: err.Error()})
		e.report.Failed = "the index cannot be read, and this cannot be repaired: restore a backup"
		return nil
	}
	if e.apart && !e.lacks(indexDir) {
		e.cut, e.pages = 0, nil
		e.found(Damage{File: e.fs.PathJoin(e.dir, indexDir), What: "it is whole, but frames behind the damage in the journal depend on lost ones. So a repair gives up all of index/ and brings back what is on disk"})
		err := e.giveUp(indexDir)
		e.salvaging = true
		return err
	}
	if e.cut != 0 || e.lacks(indexDir) {
		return nil
	}
	// There is no checkpoint: the node is young, or a repair was interrupted.
	if err := e.withoutIndex(); err != nil || !e.salvaging {
		return err
	}
	e.found(Damage{File: e.fs.PathJoin(e.dir, indexDir), What: "it has no checkpoint: all of index/ is given up" + lostWith[indexDir]})
	return e.giveUp(indexDir)
}

// logs reads both journals completely.
func (e *examination) logs() (err error) {
	path := e.fs.PathJoin(e.dir, stateLogDir)
	begins := journal.Pos(0) // without tables all of the log counts that is there
	if !e.lacks(stateDir) {
		if begins, err = store.LogBegins(e.fs, e.fs.PathJoin(e.tree.to, stateDir)); err != nil {
			return err
		}
	}
	if e.stateLog, err = journal.Inspect(e.fs, path, begins, func(journal.Pos, []byte) error { return nil }); err != nil {
		return err
	}
	behind := tally{}
	first := journal.Pos(0) // position of the first damage that a start meets
	path = e.fs.PathJoin(e.dir, journalDir)
	if e.behind, err = e.behindKept(); err != nil {
		return err
	}
	from := max(e.cut, e.behind, journal.Beginning)
	if e.salvaging && e.behind == 0 {
		from = 0 // without the index nothing shows where the journal begins
	}
	if e.log, err = journal.Inspect(e.fs, path, from, func(journal.Pos, []byte) error { return nil }); err != nil {
		return err
	}
	for i := range e.log.Holes {
		if h := &e.log.Holes[i]; !h.Before {
			first = h.Pos()
			break
		}
	}
	if first != 0 { // read again, now that the first damage is known
		_, err = journal.Inspect(e.fs, path, e.cut, func(pos journal.Pos, payload []byte) error {
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
	if err := repairLog(e.fs, e.tree.to, stateLogDir, &e.stateLog, 0, e.report.How); err != nil {
		e.report.Failed = err.Error()
	} else if err := e.adopt(e.tree.to); err != nil {
		return err
	} else if e.names, err = e.readDeclarations(); err != nil {
		e.found(Damage{File: e.fs.PathJoin(e.dir, stateDir), What: err.Error()})
		e.report.Failed = "the declarations cannot be read, and this cannot be repaired: restore a backup"
	}
	for i := range e.stateLog.Holes {
		h := &e.stateLog.Holes[i]
		d := damageOf(h)
		if !h.Proof {
			d.What += "; it held declarations"
		}
		e.found(d)
	}
	for i := range e.log.Holes {
		h := &e.log.Holes[i]
		d := damageOf(h)
		if !h.Header && !h.Proof {
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

// adopt makes new tables of declarations where they are lost, for the log that is left.
func (e *examination) adopt(dir string) error {
	if !e.lacks(stateDir) {
		return nil
	}
	return store.Adopt(e.fs, e.fs.PathJoin(dir, stateDir), slog.New(slog.DiscardHandler), e.onFatal)
}

// readDeclarations reads the declarations, without the tables if these cannot be read.
func (e *examination) readDeclarations() (names, error) {
	n, err := e.declarations()
	if store.IsDamage(err) && !e.lacks(stateDir) {
		if err := errors.Join(e.damaged(stateDir, err), e.adopt(e.tree.to)); err != nil {
			return nil, err
		}
		return e.declarations()
	}
	return n, err
}

// declarations reads the declarations. A log whose tables are lost may have a queue without its virtual host; then
// the whole log is ignored.
func (e *examination) declarations() (names, error) {
	if e.torn() {
		lost, err := repairDeclarations(e.fs, e.tree.to, e.onFatal)
		if err != nil {
			return nil, err
		}
		e.report.Dropped = lost
	}
	n, err := readNames(e.fs, e.tree.to, e.onFatal)
	if err == nil || !e.lacks(stateDir) {
		return n, err
	}
	e.noStateLog = true
	for _, part := range []string{stateDir, stateLogDir} {
		if err := e.fs.RemoveAll(e.fs.PathJoin(e.tree.to, part)); err != nil {
			return nil, err
		}
	}
	return readNames(e.fs, e.tree.to, e.onFatal)
}

// torn says whether some declarations are lost to which others may refer.
func (e *examination) torn() bool {
	return !e.lacks(stateDir) && (e.lostDeclarations() || e.undeclared)
}

// lostDeclarations says whether the log of declarations has lost some that a start reads.
func (e *examination) lostDeclarations() bool {
	return slices.ContainsFunc(e.stateLog.Holes, func(h journal.Hole) bool { return !h.Before && !h.Proof })
}

// count counts the operations of a frame by queue.
func (e *examination) count(payload []byte, c tally) {
	if partition.IsDeclared(payload) {
		return
	}
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

// heldBytes is how much of a damaged frame is examined.
const heldBytes = 1 << 20

// held guesses which queues a damaged frame was about.
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
			delete(c, incarnation) // probably nonsense
		}
	}
	return c.touched(e.names)
}

// linkRest adds the other files that recovery needs to the tree, and repairs the journal there.
func (e *examination) linkRest() error {
	if err := e.tree.addLog(journalDir, &e.log); err != nil {
		return err
	}
	if err := e.tree.add(keepDir, never, never); err != nil {
		return err
	}
	if err := e.repairJournal(e.tree.to); err != nil {
		e.report.Failed = err.Error()
	}
	return nil
}

// recover opens a node on the tree without serving clients, and reads every message.
func (e *examination) recover() error {
	b, err := e.open(e.tree.to)
	if err != nil {
		e.report.Failed = err.Error()
		if e.report.How == SkipFrame && len(e.log.Holes) > 0 {
			e.report.Failed += "; frames after the damage depend on what is lost: try --cut"
			e.report.TryCut = true
		}
		return nil
	}
	e.senseless(b.Node().Senseless())
	e.messages, err = b.Verify()
	if err = errors.Join(err, b.Close()); err != nil {
		e.report.Failed = err.Error()
		return nil
	}
	missing := map[string]int{} // index of a file in the report
	for _, q := range e.messages {
		e.report.Queues++
		e.report.Messages += q.Messages
		if len(q.Unreadable) == 0 {
			continue
		}
		e.report.Unreadable = append(e.report.Unreadable, Touched{VHost: q.VHost, Queue: q.Queue, Messages: len(q.Unreadable)})
		named := 0
		for _, u := range q.Unreadable {
			file := e.fileOf(u.At)
			if e.lacks(e.fs.PathBase(e.fs.PathDir(file))) {
				continue // the report says so
			}
			if _, err := e.fs.Stat(file); errors.Is(err, fs.ErrNotExist) {
				at, ok := missing[file]
				if !ok {
					at = len(e.report.Damages)
					missing[file] = at
					e.found(Damage{File: file, What: "the file is missing"})
				}
				e.report.Damages[at].lost(q.VHost, q.Queue)
				continue
			}
			if named++; named <= namedPlaces {
				e.found(Damage{File: file, Offset: int64(u.At.Offset()), What: u.Err.Error(), Held: []Touched{{VHost: q.VHost, Queue: q.Queue, Messages: 1}}})
			}
		}
	}
	return nil
}

// lost counts one more message of a queue that the damage has destroyed.
func (d *Damage) lost(vhost, queue string) {
	if n := len(d.Held); n == 0 || d.Held[n-1].VHost != vhost || d.Held[n-1].Queue != queue {
		d.Held = append(d.Held, Touched{VHost: vhost, Queue: queue})
	}
	d.Held[len(d.Held)-1].Messages++
}

// senseless notes the frames that a start skips.
func (e *examination) senseless(list []partition.Senseless, total int) {
	for _, s := range list {
		d := Damage{File: e.fs.PathJoin(e.dir, journalDir), Bytes: int64(s.To - s.From), What: s.Why + ": a start skips it"}
		if s.Pos != 0 {
			d.File, d.Offset = e.fs.PathJoin(d.File, fmt.Sprintf("%010d.seg", s.Pos.Segment())), s.Pos.Offset()
		}
		e.found(d)
	}
	if e.report.Senseless = total; total > len(list) {
		e.found(Damage{File: e.fs.PathJoin(e.dir, journalDir), What: fmt.Sprintf("%d more frames or commands make no sense", total-len(list))})
	}
}

// open opens the directory as a start would. Before that it declares queues that have messages but no
// declaration.
func (e *examination) open(dir string) (*broker.Broker, error) {
	o := broker.Options{FS: e.fs, Dir: dir, OnFatal: e.onFatal, LostAndFound: true} // the dead of a queue that has lost its arguments stay
	how := broker.Stopped{Incomplete: e.incomplete, KeepUndeclared: e.undeclared || e.lostDeclarations()}
	if e.salvaging {
		how.Salvage = e.salvage(dir)
	}
	b, err := broker.OpenStopped(o, how)
	var age *datadir.IncompleteError
	if errors.As(err, &age) && age.Stale != "" && !e.incomplete {
		e.found(Damage{File: e.dir, What: age.Stale})
		e.incomplete, e.undeclared = true, true
		return e.open(dir)
	}
	var lost *broker.LostDeclarationsError
	if errors.As(err, &lost) && !e.undeclared {
		d := Damage{File: e.fs.PathJoin(e.dir, stateLogDir), What: lost.Why + "; it held declarations"}
		if end := e.stateLog.End; end != 0 { // the tree may already have a later segment
			d.File, d.Offset = e.fs.PathJoin(d.File, fmt.Sprintf("%010d.seg", end.Segment())), end.Offset()
		}
		e.found(d)
		e.undeclared = true
		return e.open(dir)
	}
	e.report.Readmitted = nil
	for range 4 { // a queue that is in no checkpoint is known only after the log of its group is read
		var nowhere *partition.NoQueueError
		if errors.As(err, &nowhere) && how.Salvage != nil && how.Salvage.Into == 0 {
			if how.Salvage.Into, err = declareRepaired(e.fs, dir); err != nil {
				return nil, err
			}
			b, err = broker.OpenStopped(o, how)
			continue
		}
		var undeclared *partition.UndeclaredError
		if !errors.As(err, &undeclared) {
			break
		}
		queues, failed := readmit(e.fs, dir, undeclared.Queues)
		if failed != nil {
			return nil, failed
		}
		e.report.Readmitted = append(e.report.Readmitted, queues...)
		b, err = broker.OpenStopped(o, how)
	}
	if err == nil && e.salvaging {
		e.salvaged(&how.Salvage.Found, namesIn(b))
	}
	return b, err
}

// namedPlaces is how many unreadable messages of a queue the report lists one by one.
const namedPlaces = 10
