package repair

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"bartleby.mq/internal/core/queue"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/cluster"
	"bartleby.mq/internal/run/partition"
)

// DumpOptions select the frames and operations to show.
type DumpOptions struct {
	From  journal.Pos // leave out earlier frames
	Queue string      // leave out operations on other queues; "": show all
	VHost string      // of Queue; "": any
}

// ParsePos reads a position as Pos.String writes it: segment:offset, or a segment.
func ParsePos(text string) (journal.Pos, error) {
	segment, offset, _ := strings.Cut(text, ":")
	s, err := strconv.ParseUint(segment, 10, 29)
	var o uint64
	if err == nil && offset != "" {
		o, err = strconv.ParseUint(offset, 10, 32)
	}
	if err != nil {
		return 0, fmt.Errorf("position %q is not of the form SEGMENT:OFFSET, such as 7:8192", text)
	}
	return journal.MakePos(uint32(s), int64(o)), nil
}

// Dump writes the frames of a stopped node's journal as text, including frames after
// damage. It changes nothing. REQUIRES: no node runs on the directory.
func Dump(files vfs.FS, dir string, o DumpOptions, w io.Writer) error {
	_, err := guarded(files, dir, func(onFatal func(error)) (struct{}, error) {
		return struct{}{}, dump(files, dir, o, w, onFatal)
	})
	return err
}

func dump(files vfs.FS, dir string, o DumpOptions, w io.Writer, onFatal func(error)) (err error) {
	t, err := newTree(files, dir)
	defer func() { err = errors.Join(err, t.remove()) }()
	if err != nil {
		return err
	}
	d := dumper{o: o, p: printer{w: w}}
	if err := errors.Join(t.addStore(stateDir), t.add(stateLogDir, func(string) bool { return true }, never)); err != nil {
		return err
	}
	if d.names, err = readNames(files, t.to, onFatal); err != nil {
		d.p.line("the declarations cannot be read, queues have no names: %v", err)
	}
	in, err := journal.Inspect(files, files.PathJoin(dir, journalDir), 0, d.frame)
	if err != nil {
		return err
	}
	for i := range in.Holes {
		h := &in.Holes[i]
		d.p.line("%s  DAMAGE up to offset %d: %s", h.Pos(), h.To, h.Reason)
	}
	return d.p.err
}

// dumper writes frames.
type dumper struct {
	o     DumpOptions
	p     printer
	names names
}

func (d *dumper) frame(pos journal.Pos, payload []byte) error {
	switch {
	case pos < d.o.From:
	case partition.IsFrame(payload):
		err := partition.ReadOperations(payload, func(o *partition.Operation) {
			if d.wanted(o) {
				d.p.line("%s  %s", pos, d.operation(o))
			}
		})
		if err != nil {
			d.p.line("%s  %v", pos, err)
		}
	case d.o.Queue != "": // a group's frames name no queue
	case partition.IsDeclared(payload):
		d.p.line("%s  declarations are durable beyond %s of their log", pos, partition.ReadDeclared(payload).Pos)
	case len(payload) > 0 && payload[0] == cluster.FrameFirstByte:
		d.p.line("%s  %s", pos, cluster.DescribeFrame(payload))
	default:
		d.p.line("%s  %d bytes of a format that is not known", pos, len(payload))
	}
	return d.p.err
}

func (d *dumper) wanted(o *partition.Operation) bool {
	if d.o.Queue == "" || o.Queue != 0 && d.named(o.Queue) {
		return true
	}
	for _, t := range o.Targets {
		if d.named(t.Queue) {
			return true
		}
	}
	return false
}

func (d *dumper) named(incarnation uint64) bool {
	t := d.names.of(incarnation)
	return t.Queue == d.o.Queue && (d.o.VHost == "" || t.VHost == d.o.VHost)
}

// operation writes one line.
func (d *dumper) operation(o *partition.Operation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s", o.Kind)
	if o.Queue != 0 {
		fmt.Fprintf(&b, " %s", d.name(o.Queue))
	}
	switch {
	case o.Kind == "purge":
		fmt.Fprintf(&b, " all but %d", o.Count)
	case o.Count == 1 && o.Queue != 0:
		fmt.Fprintf(&b, " id %s", entryID(o.First))
	case o.Count > 1 && o.Queue != 0:
		fmt.Fprintf(&b, " ids %s and %d more", entryID(o.First), o.Count-1)
	}
	if o.Record > 0 {
		fmt.Fprintf(&b, " serial %d, %d bytes", uint64(o.Serial), o.Record)
	}
	if o.Reason != 0 {
		fmt.Fprintf(&b, " %s", o.Reason)
	}
	for _, t := range o.Targets {
		fmt.Fprintf(&b, " -> %s id %s", d.name(t.Queue), entryID(t.ID))
	}
	if o.Keeps {
		b.WriteString(" (and stays)")
	}
	return strings.TrimRight(b.String(), " ")
}

func (d *dumper) name(incarnation uint64) string {
	t := d.names.of(incarnation)
	if t.VHost == "" || t.VHost == "/" {
		return t.Queue
	}
	return t.VHost + "/" + t.Queue
}

// entryID writes an entry's number, and its priority level unless it is the lowest.
func entryID(id queue.ID) string {
	if id.Lane() == 0 {
		return strconv.FormatUint(id.Seq(), 10)
	}
	return fmt.Sprintf("%d of level %d", id.Seq(), id.Lane())
}
