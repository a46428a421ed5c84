package outbox

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/queue"
)

var update = flag.Bool("update", false, "write the effects that the scripts have into them")

// TestScripts runs the scripts of testdata, of which each shows a rule. In a script a line is a command, the lines
// below it that are indented are its effects, and '#' begins a comment. There are two logs, 1 and 2; what log 1 has for
// log 2 is what most commands are about (see world.run).
func TestScripts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal(err, "there are no scripts")
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			w := &world{t: t, tallies: map[uint64]*Tally{}}
			var got strings.Builder
			for line := range strings.Lines(string(want)) {
				if strings.HasPrefix(line, "\t") {
					continue
				}
				got.WriteString(line)
				if command := strings.Fields(line); len(command) > 0 && command[0] != "#" {
					w.run(command[0], command[1:])
					for _, effect := range w.effects {
						fmt.Fprintf(&got, "\t%s\n", effect)
					}
					w.effects = nil
				}
			}
			if *update {
				err = os.WriteFile(name, []byte(got.String()), 0o644)
			} else if got.String() != string(want) {
				t.Errorf("the script should be\n%s", got.String())
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// world is two logs, without queues: commands say what a queue would do.
type world struct {
	t       *testing.T
	from    Boxes             // of log 1
	to      Boxes             // of log 2
	tallies map[uint64]*Tally // of the queues of log 1
	effects []string
}

func (w *world) say(format string, args ...any) {
	w.effects = append(w.effects, fmt.Sprintf(format, args...))
}

func (w *world) tally(source uint64) *Tally {
	if w.tallies[source] == nil {
		w.tallies[source] = &Tally{}
	}
	return w.tallies[source]
}

// run carries out one command. The words behind it are numbers, names of answers and flags, and key=value.
func (w *world) run(command string, words []string) {
	number, answer, flags, values := uint64(0), Taken, Flags(0), map[string]uint64{"from": 10, "to": 20}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			value = key
		}
		v, err := strconv.ParseUint(value, 10, 64)
		switch {
		case ok && err == nil:
			values[key] = v
		case err == nil:
			number = v
		case word == "move":
			flags |= Move
		case word == "shared":
			flags |= Shared
		default:
			answer = answerOf(w.t, word)
		}
	}
	entry := Entry{
		Number: number, Source: values["from"], Target: values["to"], ID: queue.ID(values["id"]), Flags: flags,
		Body: message.Ref(values["body"]),
	}
	box := w.from.To(2)
	blank := func() message.Ref { return 0 }
	switch command {
	case "put": // log 1 puts an entry into its outbox
		e := w.from.Put(2, entry, w.tally(entry.Source))
		w.say("entry %d", e.Number)
	case "send": // its sender takes what may go
		l, _ := w.from.Load(0, 100)
		if len(l.Entries) == 0 {
			w.say("nothing")
		}
		for _, e := range l.Entries {
			w.say("entry %d for queue %d", e.Number, e.Target)
			w.from.Sent(2, e.Number)
		}
	case "resend": // it begins again
		w.from.Resend()
	case "arrive": // an entry reaches log 2, whose queue says what becomes of it if it is the next
		switch in := w.to.From(1); {
		case !in.Accept(number):
			w.say("ignored: the next is %d", in.Last()+1)
		case answer != Taken:
			in.Refuse(number, answer)
			w.say("refused: %s", answerNames[answer])
		default:
			w.say("taken")
		}
	case "acknowledge": // what log 2 says of entries up to a number reaches log 1
		upTo, refused := w.to.From(1).Acknowledgement(number)
		w.say("up to %d", upTo)
		w.settle(box.Acknowledge(upTo), func(e *Entry) Answer { return refused.Of(e.Number) })
	case "heard": // log 2 hears that log 1 has acknowledgements up to a number
		w.to.From(1).Heard(number)
		w.say("%d refusals are remembered", len(w.to.From(1).Refusals()))
	case "believe": // likewise, where the frames that tell of what log 2 took may be lost
		w.to.From(1).Believe(number)
		w.say("the next is %d", w.to.From(1).Last()+1)
	case "redo-taken": // the journal of log 2 tells of entries that were taken up to a number, or of one that was not
		w.to.From(1).Redo(number, answer, values["heard"])
		w.say("the next is %d, %d refusals are remembered", w.to.From(1).Last()+1, len(w.to.From(1).Refusals()))
	case "close": // log 2 is gone for good
		w.settle(box.Close(), func(*Entry) Answer { return Gone })
	case "stranded": // which of the stranded have numbers below this one
		for _, s := range w.from.Stranded(map[uint64]uint64{2: number}, func(*Entry) bool { return true }, 0, 100) {
			w.say("entry %d of queue %d", s.Number, s.Source)
		}
	case "relocate": // a stranded entry goes to another queue of log 2
		e, ok := box.TakeStranded(number, w.tally)
		if !ok {
			w.say("it is not stranded")
			return
		}
		e.Target = entry.Target
		w.say("entry %d", w.from.Put(2, e, w.tally(e.Source)).Number)
	case "crash": // log 1 is as its checkpoint has it
		state := box.State()
		w.from, w.tallies = Boxes{}, map[uint64]*Tally{}
		if !w.from.Restore(&state, w.tally) {
			w.say("the numbers do not fit")
		}
	case "redo", "redo-lost": // the journal tells of an entry; with damage before, some may be lost
		if box.Knows(number) {
			w.say("it is known")
			return
		}
		if command == "redo" {
			blank = nil
		}
		if !box.Redo(entry, blank, w.tally(entry.Source)) {
			w.say("the numbers do not fit")
		}
	case "passed": // the journal tells of an acknowledgement
		w.settle(box.Acknowledge(number), func(*Entry) Answer { return Taken })
		box.Passed(number)
	case "took": // log 1 took entries of log 2, up to a number
		w.from.Took(2, number)
	case "known": // log 2 has the acknowledgement in its own log
		w.from.HeardBy(map[uint64]uint64{2: number})
	case "restart": // log 1 has taken entries of log 2 up to a number, in an earlier process
		w.from.RestoreInbox(2, number, nil)
		w.from.Retake()
	case "show": // what the outbox has
		w.say("acknowledged %d, next %d", box.Acknowledged(), box.Next())
		for _, e := range box.Waiting() {
			if e.Nothing() {
				w.say("entry %d: nothing", e.Number)
			} else {
				w.say("entry %d: queue %d to %d", e.Number, e.Source, e.Target)
			}
		}
		for _, e := range box.Stranded() {
			w.say("stranded %d: queue %d to %d", e.Number, e.Source, e.Target)
		}
		t := w.tally(10)
		w.say("queue 10: %d in transit, %d stranded", t.Transit, t.Stranded)
	default:
		w.t.Fatalf("there is no command %q", command)
	}
}

func (w *world) settle(entries []Entry, answer func(*Entry) Answer) {
	for i := range entries {
		e := &entries[i]
		fate := w.from.To(2).Settle(e, answer(e), w.tally(e.Source))
		w.say("entry %d: %s", e.Number, fateNames[fate])
	}
}

var answerNames = map[Answer]string{Taken: "taken", Full: "full", Gone: "gone", Unread: "unread"}

func answerOf(t *testing.T, name string) Answer {
	for a, n := range answerNames {
		if n == name {
			return a
		}
	}
	t.Fatalf("there is no word %q", name)
	return 0
}

var fateNames = map[Fate]string{
	Nowhere: "it was nothing", Queued: "the answer is for its queue", Arrived: "arrived", Refused: "refused, and dropped", Stranded: "stranded",
}
