package repair

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"bartleby.mq/internal/disk/journal"
)

// Damage is one damaged place.
type Damage struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`          // bytes from the start of the file
	Bytes  int64  `json:"bytes,omitempty"` // length of the damage, as far as known
	What   string `json:"what"`
	// Harmless says that no queue needs the damaged bytes: a start does not notice.
	Harmless bool `json:"harmless,omitempty"`
	// Restorable says that a repair restores the damaged part completely from other files.
	Restorable bool `json:"restorable,omitempty"`
	// Held is what can still be read of a damaged frame: the number of messages by
	// queue. It is a lower bound.
	Held []Touched `json:"held,omitempty"`
}

// Touched is a queue and the number of its messages or operations that damage affects.
type Touched struct {
	VHost    string `json:"vhost,omitempty"`
	Queue    string `json:"queue"`
	Messages int    `json:"messages"`
}

// Report is what an examination found.
type Report struct {
	Dir     string   `json:"data_dir"`
	How     How      `json:"how"` // the repair that the report is for
	Damages []Damage `json:"damage"`
	// Unreadable counts messages whose place is known and whose bytes are damaged, by queue.
	Unreadable []Touched `json:"unreadable"`
	// Readmitted are queues that have messages but no declaration. The repair declares them, under their
	// names if these are known. Some may have been deleted before the damage.
	Readmitted []Touched `json:"readmitted,omitempty"`
	// Dropped lists declarations that refer to lost ones, and what the repair does with them.
	Dropped []string `json:"dropped,omitempty"`
	// Behind counts, by queue, operations in intact frames after the first damage that a
	// start would read: the loss of --cut.
	Behind []Touched `json:"behind_damage"`
	// Replicated says that there are frames of groups after it too; they name no queue.
	Replicated bool `json:"behind_damage_replicated,omitempty"`
	// Senseless counts frames, and commands of groups, that are intact but make no sense. A
	// start skips them and keeps their bytes in senseless/.
	Senseless int `json:"senseless,omitempty"`
	// Salvaged is what the repair brings back if the index is lost and the journal does not have everything.
	Salvaged *Salvaged `json:"brought_back,omitempty"`
	// Failed is why a node would not start even after the repair; "" if it would.
	Failed string `json:"failed,omitempty"`
	// TryCut says that a repair with Cut may succeed where this one fails.
	TryCut bool `json:"try_cut,omitempty"`

	Segments  int    `json:"segments"`
	Frames    int64  `json:"frames"`
	TornBytes int64  `json:"torn_bytes"` // bytes that a crash cut short, which is not damage
	End       string `json:"journal_end"`
	Queues    int    `json:"queues"`
	Messages  int    `json:"messages"` // number of messages read
}

// Clean says whether there is no damage that affects a queue.
func (r *Report) Clean() bool {
	return r.Failed == "" && len(r.Unreadable) == 0 && !slices.ContainsFunc(r.Damages, func(d Damage) bool { return !d.Harmless }) && len(r.Readmitted) == 0
}

// Lossless says whether the repair that the report was made for loses nothing.
func (r *Report) Lossless() bool {
	return r.Failed == "" && len(r.Unreadable)+len(r.Readmitted)+len(r.Dropped)+len(r.Behind)+r.Senseless == 0 && !r.Replicated && r.Salvaged == nil &&
		!slices.ContainsFunc(r.Damages, func(d Damage) bool { return !d.Harmless && !d.Restorable })
}

// writeLost writes what the repair loses.
func (r *Report) writeLost(p *printer) {
	if r.Lossless() {
		p.line("nothing is lost:")
	} else {
		p.line("what is lost:")
	}
	for _, d := range r.Damages {
		if d.Harmless {
			continue
		}
		p.line("  %s at offset %d: %s", d.File, d.Offset, d.What)
		for _, t := range d.Held {
			p.line("    as far as it can be read, it concerned %s", t)
		}
	}
	for _, t := range r.Unreadable {
		p.line("  UNREADABLE: %s", t)
	}
	for _, t := range r.Readmitted {
		p.line("  arguments and bindings of %s; it may have been deleted before", t)
	}
	for _, what := range r.Dropped {
		p.line("  %s", what)
	}
	if r.How == Cut {
		for _, t := range r.Behind {
			p.line("  after the damage: operations on %s", t)
		}
		if r.Replicated {
			p.line("  after the damage: frames of replicated queues, which name no queue")
		}
	}
	if r.Senseless > 0 {
		p.line("  %d frames or commands that make no sense; their bytes are kept in senseless/", r.Senseless)
	}
	if r.Salvaged != nil {
		r.Salvaged.write(p)
	}
}

// Write writes the report as text.
func (r *Report) Write(w io.Writer) error {
	p := printer{w: w}
	p.line("journal: %d segments, %d frames, ends at %s", r.Segments, r.Frames, r.End)
	if r.TornBytes > 0 {
		p.line("  %d bytes at its end are incomplete frames, as a crash leaves them: no client got a confirm for them", r.TornBytes)
	}
	for _, d := range r.Damages {
		kind := "DAMAGE"
		if d.Harmless {
			kind = "note"
		}
		p.line("%s: %s at offset %d: %s", kind, d.File, d.Offset, d.What)
		if d.Harmless {
			p.line("  no queue needs it")
		}
		for _, t := range d.Held {
			p.line("  as far as it can be read, it concerned %s", t)
		}
	}
	for _, t := range r.Unreadable {
		p.line("UNREADABLE: %s", t)
	}
	for _, t := range r.Readmitted {
		p.line("DECLARATION LOST: %s, without its arguments and bindings; it may have been deleted before", t)
	}
	for _, what := range r.Dropped {
		p.line("DECLARATION LOST: %s", what)
	}
	for _, t := range r.Behind {
		p.line("after the damage, intact, but lost by --cut: operations on %s", t)
	}
	if r.Replicated {
		p.line("after the damage there are frames of replicated queues too, which name no queue")
	}
	if r.Salvaged != nil {
		r.Salvaged.write(&p)
	}
	if r.Failed != "" {
		p.line("a node would not start: %s", r.Failed)
	}
	p.line("checked %d queues with %d messages", r.Queues, r.Messages)
	if r.Clean() {
		p.line("no damage")
	}
	return p.err
}

// String names the queue and the number.
func (t Touched) String() string {
	where := ""
	if t.VHost != "" {
		where = fmt.Sprintf(" in vhost %q", t.VHost)
	}
	return fmt.Sprintf("queue %q%s: %d messages", t.Queue, where, t.Messages)
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// tally counts messages by the incarnation of their queue.
type tally map[uint64]int

// touched returns the counts with the names of the queues, sorted by name.
func (c tally) touched(names names) []Touched {
	var all []Touched
	for _, incarnation := range slices.Sorted(maps.Keys(c)) {
		t := names.of(incarnation)
		t.Messages = c[incarnation]
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(a, b Touched) int {
		return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Queue, b.Queue))
	})
	return all
}

// damageOf describes a hole in a journal.
func damageOf(h *journal.Hole) Damage {
	return Damage{File: h.File, Offset: h.From, Bytes: h.To - h.From, What: h.Reason, Harmless: h.Before, Restorable: h.Proof}
}
