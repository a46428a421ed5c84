package journal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeCategory is what vfs accounts the journal's writes to.
const writeCategory = vfs.WriteCategoryUnspecified

var (
	// ErrClosed is what a Commit of a frame that is not durable, and every ReadAt,
	// get after Close.
	ErrClosed = errors.New("journal: closed")
	// ErrNotHeld is what ReadAt gets for a position that is in no segment: never
	// written, lost in a crash, or retired.
	ErrNotHeld = errors.New("journal: position is not held")
)

// Journal is the log of a node. Once Recover has returned, its methods may be
// called from any goroutine.
//
// Two kinds of state, kept apart so that Append never waits for the disk:
//   - what mu guards: the buffer, the tail, the rounds; held for a memcpy and a CRC.
//   - what busy guards: the file being written. At most one goroutine leads at a
//     time; it does all the I/O of appending, without mu.
//
// Locks are taken in the order dirMu or notices.running, mu; segments has its own,
// under which no other is taken.
type Journal struct {
	opts      Options
	dir       vfs.File  // the directory, for syncing it
	keep      vfs.File  // Options.KeepDir likewise; nil if there is none
	found     directory // as Open found it; dropped when recovered
	recovered bool

	// durable is the Pos below which everything is durable. Written under mu.
	durable atomic.Uint64

	mu     sync.Mutex
	open   bool  // frames are accepted: recovered, not failed, not closed
	closed bool  // Close was called
	err    error // final: the first failure, or ErrClosed
	tail   tail
	active batch         // frames not handed to a leader yet
	filled chan struct{} // see Filled
	// writing is the batch the leader is writing. The leader reads it without mu;
	// nobody changes it until the leader is done.
	writing batch
	written Pos  // below it everything is in a file
	marked  Pos  // the syncedTo of the last frame appended
	fresh   bool // the next frame begins a segment
	rounds
	waiting notices

	// out is the file being written. Owned by the leader.
	out struct {
		file   vfs.File // nil until the first frame after Recover
		number uint32
		dirty  bool // written to since the last sync
	}

	segments table

	// dirMu serialises changes to the directory: rolling and retiring.
	dirMu sync.Mutex
	free  []string // names of recycled files

	short atomic.Bool // see ShortOfRoom
}

// Open makes the directory if needed and reads the headers of its segments, no
// frame. Recover must follow before anything is appended. It fails on I/O errors
// and on segments of an unknown format.
func Open(opts Options) (*Journal, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	j := &Journal{opts: opts, filled: make(chan struct{}, 1)}
	if j.dir, err = openDirectory(opts.FS, opts.Dir); err != nil {
		return nil, err
	}
	if j.found, err = readDirectory(opts.FS, opts.Dir); err != nil {
		_ = j.dir.Close()
		return nil, err
	}
	if opts.KeepDir != "" {
		if j.keep, err = openDirectory(opts.FS, opts.KeepDir); err != nil {
			_ = j.dir.Close()
			return nil, err
		}
	}
	j.free = j.found.free
	j.rounds.init(&j.mu)
	j.segments.fs = opts.FS
	if opts.Short {
		if err := j.ShortOfRoom(true); err != nil {
			// Nobody needs the files to be gone: it goes on as it can.
			opts.Logger.Warn("cannot remove recycled files of the journal", "dir", opts.Dir, "error", err)
		}
	}
	return j, nil
}

// First is the number of the oldest segment that Open has found, 0 if there is none. REQUIRES:
// Recover was not called yet.
func (j *Journal) First() uint32 {
	if len(j.found.segments) == 0 {
		return 0
	}
	return j.found.segments[0].number
}

// openDirectory makes a directory if needed, with its name durable, and opens it.
func openDirectory(fs vfs.FS, dir string) (vfs.File, error) {
	if err := MakeDirectory(fs, dir); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	f, err := fs.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: open directory %s: %w", dir, err)
	}
	return f, nil
}

// start makes a recovered journal ready for frames. They go to a segment of their
// own, which is made when the first of them is written: end, where the recovered
// frames end, goes into its header.
func (j *Journal) start(r *replayResult, end Pos) {
	for _, s := range r.old {
		// Their frames were not read; the file holds them all.
		j.segments.add(&segment{
			number: s.number, path: s.path, end: s.size,
			recyclable: s.state == headerValid && s.intact && j.recyclableSize(s.size),
		})
	}
	for i, s := range r.valid {
		j.segments.add(&segment{
			number: s.number, path: s.path, end: r.reports[i].Bytes,
			recyclable: s.intact && j.recyclableSize(s.size),
		})
	}
	j.found, j.recovered = directory{}, true

	j.mu.Lock()
	defer j.mu.Unlock()
	// A blank segment's number is taken again: no frame in it survived.
	j.tail = newTail(end.Segment()+1, end)
	j.durable.Store(uint64(end))
	j.written, j.marked = end, end
	j.open = true
}

// recyclableSize keeps the files of frames larger than a segment from living on
// as ordinary segments. A mark may stand behind a full one.
func (j *Journal) recyclableSize(bytes int64) bool { return bytes <= j.opts.SegmentBytes+headerBytes }

// Committed is the position below which every frame is known to be durable.
func (j *Journal) Committed() Pos { return Pos(j.durable.Load()) }

// Close writes and syncs what is buffered, seals the log with a mark that proves
// all of it durable, and closes the files. What other goroutines append meanwhile
// may go nowhere; their Commit says so with ErrClosed. It returns the error that
// stopped the journal, if one did. A second Close does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	again, appended := j.closed, j.tail.offset > headerBytes
	j.closed = true
	j.mu.Unlock()
	if again {
		return nil
	}
	err := j.seal()
	if end := j.Committed(); err == nil && appended {
		if err := writeEnd(j.opts.FS, j.opts.Dir, end); err != nil { // the log is as good as after a crash
			j.opts.Logger.Warn("cannot record the end of the log", "directory", j.opts.Dir, "error", err)
		}
	}
	j.mu.Lock()
	if j.err == nil {
		j.err = ErrClosed
	}
	j.open = false
	j.waiting.drop()
	j.rounds.wakeAll()
	for j.busy {
		j.rounds.waitNext()
	}
	j.mu.Unlock()
	j.segments.close()
	for _, dir := range []vfs.File{j.dir, j.keep} {
		if dir == nil {
			continue
		}
		if cerr := dir.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("journal: close a directory of %s: %w", j.opts.Dir, cerr)
		}
	}
	return err
}

// seal makes everything durable, and the proof of it too.
func (j *Journal) seal() error {
	if !j.recovered {
		return nil
	}
	for range 2 { // the frames; then the mark that tells of them
		j.mu.Lock()
		for j.busy && j.err == nil {
			j.rounds.waitNext()
		}
		if err := j.err; err != nil {
			j.mu.Unlock()
			return err
		}
		if j.tail.offset == headerBytes {
			j.mu.Unlock()
			return nil // a start that was given up changes nothing
		}
		j.mark()
		if err := j.lead(true); err != nil {
			return err
		}
	}
	return nil
}

// fail makes err final, unless another error already is: it frees every waiter
// and tells OnFatal. mu must not be held.
func (j *Journal) fail(err error) {
	j.mu.Lock()
	first := j.stop(err)
	j.mu.Unlock()
	if first {
		j.opts.OnFatal(err)
	}
}

// stop makes err final and reports whether it is the first. REQUIRES: mu.
func (j *Journal) stop(err error) (first bool) {
	if j.err != nil {
		return false
	}
	j.err, j.open = err, false
	j.active.reset()
	j.waiting.drop()
	j.rounds.wakeAll()
	return true
}

// newEpoch draws a random number for a segment's life.
func newEpoch() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
