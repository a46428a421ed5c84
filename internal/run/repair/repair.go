package repair

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/disk/store"
	"bartleby.mq/internal/run/datadir"
	"bartleby.mq/internal/run/partition"
)

// Options say what a repair may do.
type Options struct {
	How   How
	Apply bool   // change the directory; otherwise only report
	Name  string // name of the quarantine, such as the time
}

// ErrCannotRepair means that a repair of this kind would not let a node start.
var ErrCannotRepair = errors.New("this repair is not possible")

// Repair repairs a stopped node's data directory and writes what it does. It first copies
// the files that it changes to the quarantine, with a report of what is lost. It may be
// repeated after a crash. REQUIRES: no node runs on the directory.
func Repair(files vfs.FS, dir string, o Options, w io.Writer) (*Report, error) {
	return guarded(files, dir, func(onFatal func(error)) (*Report, error) { return repair(files, dir, o, w, onFatal) })
}

func repair(files vfs.FS, dir string, o Options, w io.Writer, onFatal func(error)) (*Report, error) {
	e, err := examine(files, dir, o.How, onFatal)
	if err != nil {
		return nil, err
	}
	r := e.report
	if r.Clean() {
		_, err := fmt.Fprintln(w, "no damage, nothing to repair")
		return r, err
	}
	if r.Failed != "" {
		return r, fmt.Errorf("%w: %s", ErrCannotRepair, r.Failed)
	}
	changes := e.changes()
	quarantine := files.PathJoin(dir, quarantineDir, o.Name)
	p := printer{w: w}
	if err := errors.Join(r.Write(w), e.plan(&p, changes, quarantine)); err != nil || !o.Apply {
		if err == nil && !o.Apply {
			if r.Lossless() {
				p.line("this repair loses nothing")
			}
			p.line("nothing was changed; --yes does it")
		}
		return r, errors.Join(err, p.err)
	}
	lossless := r.Lossless()
	if err := e.quarantine(quarantine, changes, o); err != nil {
		return r, err
	}
	if err := e.apply(quarantine); err != nil {
		return r, err
	}
	after, err := Examine(files, dir, o.How)
	if err != nil {
		return r, err
	}
	if !after.Clean() {
		return after, errors.Join(after.Write(w), errors.New("some damage is left: run the repair again"))
	}
	if s := r.Salvaged; s != nil && s.Apart > 0 {
		p.line("%d messages are in queue %q of vhost %q, which no user may read yet: bartleby set_permissions -p %s USER '.*' '.*' '.*'", s.Apart, s.ApartQueue, s.ApartVHost, s.ApartVHost)
	}
	if report := files.PathJoin(quarantine, reportFile); lossless {
		p.line("repaired; nothing was lost. What was done is in %s", report)
	} else {
		p.line("repaired; what was lost is listed in %s", report)
	}
	return r, p.err
}

// plan writes what the repair does.
func (e *examination) plan(p *printer, changes map[string][]string, quarantine string) error {
	p.line("")
	p.line("the repair:")
	for _, sub := range slices.Sorted(maps.Keys(changes)) {
		for _, file := range changes[sub] {
			p.line("  copies %s to %s", path.Join(sub, file), quarantine)
		}
	}
	for log, in := range map[string]*journal.Inspection{stateLogDir: &e.stateLog, journalDir: &e.log} {
		for i := range in.Holes {
			h := &in.Holes[i]
			switch {
			case h.Before:
			case e.report.How == Cut && (log == stateLogDir || h.Pos() >= e.cut):
				p.line("  cuts %s at %s: everything after that is lost", log, h.Pos())
			default:
				p.line("  skips %d bytes of %s at %s", h.To-h.From, log, h.Pos())
			}
			if !h.Before && e.report.How == Cut && (log == stateLogDir || h.Pos() >= e.cut) {
				break
			}
		}
	}
	for _, part := range e.broken {
		p.line("  moves %s/ to %s", part, quarantine)
	}
	if e.salvaging {
		p.line("  puts all files of %s/ and %s/ into %s, most of them as links: remove them when nothing is missing", journalDir, keepDir, quarantine)
	}
	for _, part := range e.missing {
		p.line("  makes %s/ anew, empty except for what the other parts tell", part)
	}
	for _, t := range e.report.Readmitted {
		p.line("  declares %s", t)
	}
	for _, what := range e.report.Dropped {
		p.line("  %s", what)
	}
	for _, t := range e.report.Unreadable {
		p.line("  drops the unreadable messages of %s", t)
	}
	if n := e.report.Senseless; n > 0 {
		p.line("  skips %d frames or commands that make no sense; their bytes are kept in senseless/", n)
	}
	if n := len(e.pages); n > 0 {
		p.line("  drops %d pages of the index, with up to 256 messages each", n)
	}
	return p.err
}

// changes lists the files that are damaged or that the repair changes, by directory.
func (e *examination) changes() map[string][]string {
	all := map[string][]string{}
	add := func(file string) {
		if file == e.dir || e.fs.PathDir(file) == e.dir {
			return // a part, or how parts fit together: no file
		}
		sub, name := path.Base(path.Dir(toSlash(file))), path.Base(toSlash(file))
		if slices.Contains(e.broken, sub) {
			return // it is moved as a whole
		}
		if !slices.Contains(all[sub], name) {
			all[sub] = append(all[sub], name)
		}
	}
	for _, d := range e.report.Damages {
		if _, err := e.fs.Stat(d.File); err == nil && !d.Harmless && d.File != e.fs.PathJoin(e.dir, indexDir) {
			add(d.File)
		}
	}
	if e.noStateLog {
		for _, s := range e.stateLog.Segments {
			add(e.fs.PathJoin(e.dir, stateLogDir, fmt.Sprintf("%010d.seg", s.Number)))
		}
	}
	for log, in := range map[string]*journal.Inspection{stateLogDir: &e.stateLog, journalDir: &e.log} {
		for i := range in.Holes {
			h := &in.Holes[i]
			if h.Before || e.report.How != Cut {
				continue
			}
			for _, s := range in.Segments {
				if s.Number+1 >= h.Segment {
					add(e.fs.PathJoin(e.dir, log, fmt.Sprintf("%010d.seg", s.Number)))
				}
			}
			break
		}
	}
	return all
}

func toSlash(file string) string { return strings.ReplaceAll(file, `\`, "/") }

// reportFile is the name of the report in the quarantine.
const reportFile = "report.txt"

// quarantine copies the files that will change, and writes the report.
func (e *examination) quarantine(to string, changes map[string][]string, o Options) error {
	if err := journal.MakeDirectory(e.fs, to); err != nil {
		return err
	}
	t := tree{fs: e.fs, from: e.dir, to: to}
	for sub, names := range changes {
		err := t.add(sub, func(string) bool { return true }, func(file string) bool { return !slices.Contains(names, file) })
		if err == nil {
			err = journal.SyncDirectory(e.fs, e.fs.PathJoin(to, sub))
		}
		if err != nil {
			return err
		}
	}
	if e.salvaging {
		if err := e.putAway(&t, changes); err != nil {
			return err
		}
	}
	if len(e.pages) > 0 {
		if err := t.addStore(indexDir); err != nil {
			return err
		}
		if err := journal.SyncDirectory(e.fs, e.fs.PathJoin(to, indexDir)); err != nil {
			return err
		}
	}
	var text strings.Builder
	p := printer{w: &text}
	p.line("journal repair --%s of %s, %s", o.How, e.dir, o.Name)
	p.line("")
	e.report.writeLost(&p)
	if err := e.plan(&p, changes, to); err != nil {
		return err
	}
	exact, err := json.MarshalIndent(e.report, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		journal.WriteSynced(e.fs, e.fs.PathJoin(to, reportFile), []byte(text.String())),
		journal.WriteSynced(e.fs, e.fs.PathJoin(to, "report.json"), append(exact, '\n')),
		journal.SyncDirectory(e.fs, to))
}

// putAway links all files with messages into the quarantine, because the next start removes files that the new index does
// not name. It does not link files that may be written to, or that are already copied.
func (e *examination) putAway(t *tree, copied map[string][]string) error {
	newest := e.log.End.Segment()
	for _, sub := range []string{journalDir, keepDir} {
		err := t.add(sub, func(file string) bool { return sub == journalDir && segmentOf(file) >= newest },
			func(file string) bool { return strings.HasSuffix(file, ".free") || slices.Contains(copied[sub], file) })
		if err != nil {
			return err
		}
		if _, err := e.fs.Stat(e.fs.PathJoin(t.to, sub)); errors.Is(err, fs.ErrNotExist) {
			continue // it is missing
		}
		if err := journal.SyncDirectory(e.fs, e.fs.PathJoin(t.to, sub)); err != nil {
			return err
		}
	}
	return nil
}

// standIns makes an empty file for each that is missing and still has messages: those on their way to another queue, which
// the node sets aside when it cannot read them.
func (e *examination) standIns(n *partition.Node) error {
	missing, err := n.MissingFiles()
	if err != nil || len(missing) == 0 {
		return err
	}
	for _, f := range missing {
		if err := journal.WriteSynced(e.fs, e.fs.PathJoin(e.dir, f.Name), nil); err != nil {
			return err
		}
	}
	return journal.SyncDirectory(e.fs, e.fs.PathJoin(e.dir, keepDir))
}

// apply does to the data directory what the examination did to its tree, and drops
// unreadable messages.
func (e *examination) apply(quarantine string) error {
	for _, part := range e.broken {
		if err := e.fs.Rename(e.fs.PathJoin(e.dir, part), e.fs.PathJoin(quarantine, part)); err != nil {
			return err
		}
		if err := errors.Join(journal.SyncDirectory(e.fs, quarantine), journal.SyncDirectory(e.fs, e.dir)); err != nil {
			return err
		}
	}
	if len(e.pages) > 0 {
		index, err := store.OpenUnlogged(e.fs, e.fs.PathJoin(e.dir, indexDir), slog.New(slog.DiscardHandler), e.onFatal)
		if err != nil {
			return err
		}
		if err := errors.Join(partition.DropPages(index, e.pages), index.Close()); err != nil {
			return err
		}
	}
	if e.noStateLog {
		if err := e.fs.RemoveAll(e.fs.PathJoin(e.dir, stateLogDir)); err != nil { // it is in quarantine
			return err
		}
	} else if err := repairLog(e.fs, e.dir, stateLogDir, &e.stateLog, 0, e.report.How); err != nil {
		return err
	} else if err := e.adopt(e.dir); err != nil {
		return err
	}
	if e.torn() {
		if _, err := repairDeclarations(e.fs, e.dir, e.onFatal); err != nil {
			return err
		}
	}
	if err := e.repairJournal(e.dir); err != nil {
		return err
	}
	b, err := e.open(e.dir)
	if err != nil {
		return err
	}
	found, err := b.Verify()
	if err == nil {
		err = b.Forget(found)
	}
	if err == nil && (e.salvaging || len(e.report.Unreadable) > 0) {
		// A group learns what its log has committed only after the start has looked for the files.
		err = b.Node().Checkpoint()
	}
	if err == nil && e.report.Senseless > 0 {
		err = b.PassOver()
	}
	if err == nil {
		err = e.standIns(b.Node())
	}
	if err = errors.Join(err, b.Close()); err == nil {
		err = datadir.Repaired(e.fs, e.dir, e.incomplete)
	}
	if err != nil || !e.incomplete {
		return err
	}
	// Last, because only now is the directory whole.
	return datadir.Name(e.fs, e.dir)
}
