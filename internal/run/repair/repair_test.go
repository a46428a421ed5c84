package repair

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/core/auth"
	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/topology"
	"bartleby.mq/internal/disk/journal"
	"bartleby.mq/internal/run/broker"
	"bartleby.mq/internal/run/partition"
	"bartleby.mq/internal/wire/amqp091"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dataDir = "data"

// start opens a broker on files. Segments are small, so that there are several.
func start(t *testing.T, files vfs.FS) (*broker.Broker, *broker.Connection) {
	t.Helper()
	b, err := broker.Open(broker.Options{FS: files, Dir: dataDir, Partitions: 2, LostAndFound: true, Storage: broker.Storage{SegmentBytes: 64 << 10}})
	if err != nil {
		t.Fatal("start: ", err)
	}
	return b, b.As("guest", "/")
}

func stop(t *testing.T, b *broker.Broker) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, c *broker.Connection, queue, body string) {
	t.Helper()
	persistent := uint8(2)
	raw := amqp091.AppendPropsFrom(nil, amqp091.PropertyList{DeliveryMode: &persistent})
	props, err := amqp091.ParseProps(raw)
	if err != nil {
		t.Fatal(err)
	}
	p := &broker.Publication{Key: []byte(queue), Raw: raw, Props: props, Body: [][]byte{[]byte(body)}, Size: len(body)}
	if routed, err := c.PublishOne(p); err != nil || !routed {
		t.Fatalf("publish: routed %t, %v", routed, err)
	}
}

// filled is a data directory with n messages in each of two queues. A body names its queue and number.
func filled(t *testing.T, n int) *vfs.MemFS {
	t.Helper()
	files := vfs.NewCrashableMem()
	b, c := start(t, files)
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"orders", "parked"} {
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(q), Durable: true}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		for _, q := range []string{"orders", "parked"} {
			publish(t, c, q, body(q, i))
		}
	}
	stop(t, b)
	return files
}

func body(queue string, i int) string {
	return fmt.Sprintf("%s %d ", queue, i) + strings.Repeat("x", 1000)
}

// bodies returns the bodies in a queue after a start.
func bodies(t *testing.T, files vfs.FS, queue string) (found []string) {
	t.Helper()
	b, c := start(t, files)
	defer stop(t, b)
	err := c.Peek(message.QueueName(queue), 0, func(s *broker.Shown) bool {
		found = append(found, string(s.Body))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, files vfs.FS, path string) []byte {
	t.Helper()
	f, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rot changes a byte of a file in place.
func rot(t *testing.T, files vfs.FS, path string, offset int64) {
	t.Helper()
	b := read(t, files, path)
	f, err := files.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{b[offset] ^ 0x55}, offset); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// whereIs finds the file and the offset of a text: in the logs, then in the keep.
func whereIs(t *testing.T, files vfs.FS, text string) (path string, offset int64) {
	t.Helper()
	for _, dir := range []string{journalDir, stateLogDir, keepDir} {
		names, err := files.List(files.PathJoin(dataDir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			path := files.PathJoin(dataDir, dir, name)
			if at := bytes.Index(read(t, files, path), []byte(text)); at >= 0 {
				return path, int64(at)
			}
		}
	}
	t.Fatalf("%q is nowhere", text)
	return "", 0
}

func snapshot(t *testing.T, files vfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{journalDir, stateLogDir, stateDir, indexDir, keepDir} {
		names, err := files.List(files.PathJoin(dataDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, name := range names {
			path := files.PathJoin(dataDir, dir, name)
			all[path] = string(read(t, files, path))
		}
	}
	return all
}

func examined(t *testing.T, files vfs.FS, how How) *Report {
	t.Helper()
	before := snapshot(t, files)
	r, err := Examine(files, dataDir, how)
	if err != nil {
		t.Fatal(err)
	}
	after := snapshot(t, files)
	for path, text := range before {
		if after[path] != text {
			t.Errorf("%s was changed by an examination", path)
		}
	}
	if len(after) != len(before) {
		t.Errorf("an examination left %d files, there were %d", len(after), len(before))
	}
	if _, err := files.Stat(files.PathJoin(dataDir, examinationDir)); err == nil {
		t.Error("the examination's own directory is still there")
	}
	return r
}

func repaired(t *testing.T, files vfs.FS, how How) string {
	t.Helper()
	var out strings.Builder
	before := snapshot(t, files)
	if r, err := Repair(files, dataDir, Options{How: how, Name: "then"}, &out); err != nil || r.Clean() {
		t.Fatalf("the dry run: %v\n%s", err, &out)
	}
	for path, text := range snapshot(t, files) {
		if before[path] != text {
			t.Errorf("a dry run changed %s", path)
		}
	}
	out.Reset()
	if _, err := Repair(files, dataDir, Options{How: how, Apply: true, Name: "then"}, &out); err != nil {
		t.Fatalf("the repair: %v\n%s", err, &out)
	}
	if _, err := files.Stat(files.PathJoin(dataDir, quarantineDir, "then", reportFile)); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(out.String()) {
		if what, is := strings.CutPrefix(line, "  copies "); is {
			name, _, _ := strings.Cut(what, " ")
			if _, err := files.Stat(files.PathJoin(dataDir, quarantineDir, "then", name)); err != nil {
				t.Errorf("it says that it%s: %v", strings.TrimSuffix(line[1:], "\n"), err)
			}
		}
	}
	if r := examined(t, files, how); !r.Clean() {
		t.Errorf("after the repair: %+v", r)
	}
	return out.String()
}

func TestCleanDirectory(t *testing.T) {
	files := filled(t, 100)
	r := examined(t, files, SkipFrame)
	if !r.Clean() || len(r.Damages) > 0 || r.Queues != 2 || r.Messages != 200 {
		t.Errorf("a clean directory: %+v", r)
	}
}

// A start says which command to run, and changes nothing.
func TestStartNamesTheCommand(t *testing.T) {
	files := filled(t, 100)
	path, offset := whereIs(t, files, "orders 40 ")
	rot(t, files, path, offset)
	before := snapshot(t, files)
	_, err := broker.Open(broker.Options{FS: files, Dir: dataDir})
	if err == nil || !strings.Contains(err.Error(), "run: bartleby journal check --data-dir data") {
		t.Errorf("a start on damage says %v", err)
	}
	for path, text := range snapshot(t, files) {
		if strings.Contains(path, "/"+journalDir+"/") && before[path] != text {
			t.Errorf("%s was changed", path)
		}
	}
}

// One frame is damaged: skipping it loses one message, cutting loses everything after it.
func TestDamagedFrame(t *testing.T) {
	for _, how := range []How{SkipFrame, Cut} {
		t.Run(string(how), func(t *testing.T) {
			files := filled(t, 100)
			path, offset := whereIs(t, files, "orders 40 ")
			rot(t, files, path, offset)
			r := examined(t, files, how)
			if r.Clean() || len(r.Damages) != 1 || r.Damages[0].File != path || r.Damages[0].Offset >= offset || r.Damages[0].Offset < offset-200 {
				t.Fatalf("found %+v, want one damage before %d of %s", r.Damages, offset, path)
			}
			if want := (Touched{"/", "orders", 1}); len(r.Damages[0].Held) != 1 || r.Damages[0].Held[0] != want {
				t.Errorf("it was about %v, want %v", r.Damages[0].Held, want)
			}
			if want := []Touched{{"/", "orders", 59}, {"/", "parked", 60}}; !slices.Equal(r.Behind, want) {
				t.Errorf("behind it are %v, want %v", r.Behind, want)
			}
			out := repaired(t, files, how)
			if !strings.Contains(out, "quarantine") {
				t.Errorf("the repair does not name the quarantine:\n%s", out)
			}
			var orders, parked []string
			for i := range 100 {
				if i < 40 || i > 40 && how == SkipFrame {
					orders = append(orders, body("orders", i))
				}
				if i < 40 || how == SkipFrame {
					parked = append(parked, body("parked", i))
				}
			}
			if got := bodies(t, files, "orders"); !slices.Equal(got, orders) {
				t.Errorf("orders holds %d messages, want %d", len(got), len(orders))
			}
			if got := bodies(t, files, "parked"); !slices.Equal(got, parked) {
				t.Errorf("parked holds %d messages, want %d", len(got), len(parked))
			}
		})
	}
}

// A whole segment is missing, or its header is.
func TestLostSegment(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, files vfs.FS, path string){
		"file":   func(t *testing.T, files vfs.FS, path string) { _ = files.Remove(path) },
		"header": func(t *testing.T, files vfs.FS, path string) { rot(t, files, path, 3); rot(t, files, path, 4096+3) },
	} {
		for _, how := range []How{SkipFrame, Cut} {
			t.Run(name+" "+string(how), func(t *testing.T) {
				files := filled(t, 200)
				path, _ := whereIs(t, files, "orders 100 ")
				lose(t, files, path)
				if r := examined(t, files, how); r.Clean() || r.Damages[0].File != path {
					t.Fatalf("found %+v", r)
				}
				repaired(t, files, how)
				got := bodies(t, files, "orders")
				if how == Cut && (len(got) == 0 || len(got) > 100 || got[len(got)-1] != body("orders", len(got)-1)) {
					t.Errorf("after the cut there are %d messages, want the first ones", len(got))
				}
				if how == SkipFrame && (len(got) < 130 || got[len(got)-1] != body("orders", 199)) {
					t.Errorf("%d messages survived the loss of a segment", len(got))
				}
			})
		}
	}
}

// A body of a checkpoint has rotted. No start reads its frame, but the message is named and dropped.
func TestRottenBody(t *testing.T) {
	files := filled(t, 100)
	b, _ := start(t, files)
	if err := b.Node().Checkpoint(); err != nil {
		t.Fatal(err)
	}
	stop(t, b)
	path, offset := whereIs(t, files, "orders 7 ")
	rot(t, files, path, offset+3)
	r := examined(t, files, SkipFrame)
	if want := []Touched{{"/", "orders", 1}}; !slices.Equal(r.Unreadable, want) || r.Failed != "" {
		t.Fatalf("unreadable %v, failed %q, want %v", r.Unreadable, r.Failed, want)
	}
	repaired(t, files, SkipFrame)
	got := bodies(t, files, "orders")
	if len(got) != 99 || slices.Contains(got, body("orders", 7)) {
		t.Errorf("%d messages are left", len(got))
	}
	if got := bodies(t, files, "parked"); len(got) != 100 {
		t.Errorf("the other queue has %d messages", len(got))
	}
}

// The newest segment of the log of declarations is lost, and with it the age of state/. The repair puts into the quarantine what it says.
func TestLostSegmentOfDeclarations(t *testing.T) {
	files := filled(t, 10)
	for range 2 {
		b, c := start(t, files)
		publish(t, c, "orders", body("orders", 10))
		if err := b.Node().Checkpoint(); err != nil {
			t.Fatal(err)
		}
		stop(t, b)
	}
	log := files.PathJoin(dataDir, stateLogDir)
	segments, err := files.List(log)
	if err != nil {
		t.Fatal(err)
	}
	segments = slices.DeleteFunc(segments, func(name string) bool { return !strings.HasSuffix(name, ".seg") })
	if err := files.Remove(files.PathJoin(log, slices.Max(segments))); err != nil {
		t.Fatal(err)
	}
	r := examined(t, files, SkipFrame)
	out := repaired(t, files, SkipFrame)
	if !strings.Contains(fmt.Sprint(r.Damages), "state/ is older than index/") || len(bodies(t, files, "orders")) != 12 {
		t.Errorf("%v, and %d messages\n%s", r.Damages, len(bodies(t, files, "orders")), out)
	}
}

// A lost block of a disk reads as zeros: the messages in it are damaged like any others, and the report lists each.
func TestZerosAreDamage(t *testing.T) {
	for _, queue := range []string{"orders", "critical"} {
		files := checkpointed(t, 100)
		path, offset := whereIs(t, files, queue+" 7 ")
		_, end := whereIs(t, files, queue+" 12 ")
		f, err := files.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.WriteAt(make([]byte, end-offset), offset)
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		r := examined(t, files, SkipFrame)
		lost := 0
		for _, u := range r.Unreadable {
			lost += u.Messages
		}
		if lost < 5 || r.Failed != "" {
			t.Fatalf("%s: unreadable %v, failed %q, want 5 messages and more", queue, r.Unreadable, r.Failed)
		}
		repaired(t, files, SkipFrame)
		if report := string(read(t, files, files.PathJoin(dataDir, quarantineDir, "then", reportFile))); !strings.Contains(report, "UNREADABLE: queue \""+queue) {
			t.Errorf("%s: the report does not tell:\n%s", queue, report)
		}
		left := 0
		for name, bodies := range all(t, files) {
			left += len(bodies)
			for _, text := range bodies {
				if !strings.HasPrefix(text, name+" ") || len(text) < 1000 {
					t.Fatalf("%s: a message that is lost came back as %.20q", name, text)
				}
			}
		}
		if left != 300-lost {
			t.Errorf("%d messages are left of 300, %d were told lost", left, lost)
		}
	}
}

// A missing kept file takes its messages along, and no others.
func TestLostKeptFile(t *testing.T) {
	files := filled(t, 200)
	b, _ := start(t, files)
	if err := b.Node().Checkpoint(); err != nil {
		t.Fatal(err)
	}
	stop(t, b)
	path, _ := whereIs(t, files, "orders 10 ")
	if err := files.Remove(path); err != nil {
		t.Fatal(err)
	}
	r := examined(t, files, SkipFrame)
	if len(r.Unreadable) != 2 {
		t.Fatalf("unreadable: %v", r.Unreadable)
	}
	lost := 0
	for _, u := range r.Unreadable {
		lost += u.Messages
	}
	repaired(t, files, SkipFrame)
	if left := len(bodies(t, files, "orders")) + len(bodies(t, files, "parked")); left != 400-lost || lost == 0 {
		t.Errorf("%d messages are left of 400, %d were told lost", left, lost)
	}
}

// The log of declarations.
func TestDamagedDeclarations(t *testing.T) {
	files := filled(t, 10)
	path, offset := whereIs(t, files, `"name":"orders"`)
	rot(t, files, path, offset)
	if r := examined(t, files, SkipFrame); r.Clean() || r.Damages[0].File != path || !strings.Contains(r.Damages[0].What, "declarations") {
		t.Fatalf("found %+v", r)
	}
	repaired(t, files, SkipFrame)
	if got := bodies(t, files, "parked"); len(got) != 10 {
		t.Errorf("parked holds %d messages", len(got))
	}
}

func TestDump(t *testing.T) {
	files := filled(t, 3)
	var out strings.Builder
	if err := Dump(files, dataDir, DumpOptions{}, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "-> orders id"); n != 3 || !strings.Contains(out.String(), "publish") {
		t.Errorf("%d publishes to orders in:\n%s", n, &out)
	}
	out.Reset()
	if err := Dump(files, dataDir, DumpOptions{Queue: "parked"}, &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "orders") || strings.Count(out.String(), "-> parked id") != 3 {
		t.Errorf("of one queue:\n%s", &out)
	}
	out.Reset()
	if err := Dump(files, dataDir, DumpOptions{From: journal.MakePos(99, 0)}, &out); err != nil || out.Len() > 0 {
		t.Errorf("from behind the end: %v, %s", err, &out)
	}
	if _, err := ParsePos("7:x"); err == nil {
		t.Error("7:x is taken for a position")
	}
}

// The publish of a message is lost, and the message has died since: skipping the frame removes it from its target as
// well, and touches no other message.
func TestSkippedMessageThatMoved(t *testing.T) {
	files := filled(t, 30)
	b, c := start(t, files)
	declare := topology.QueueDecl{Name: "work", Durable: true, Arguments: amqp091.Table{
		{Key: "x-dead-letter-exchange", Value: ""}, {Key: "x-dead-letter-routing-key", Value: "parked"},
	}}
	if _, err := c.DeclareQueue(declare); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		publish(t, c, "work", body("work", i))
	}
	for range 10 {
		g, ok, err := c.Get("work", false)
		if err != nil || !ok {
			t.Fatal("get: ", ok, err)
		}
		c.Run([]partition.Op{{Kind: partition.Reject, Queue: g.Queue, ID: g.ID}})
		b.Bodies().Release(g.Body)
		b.Bodies().Release(g.History)
	}
	stop(t, b)
	path, offset := whereIs(t, files, "work 4 ")
	rot(t, files, path, offset)
	repaired(t, files, SkipFrame)
	work, parked := bodies(t, files, "work"), bodies(t, files, "parked")
	if len(work) != 10 || len(parked) != 39 || slices.Contains(parked, body("work", 4)) {
		t.Errorf("work holds %d, parked %d messages; want 10 and 39", len(work), len(parked))
	}
}

// The same in a quorum queue, whose log must not have gaps.
func TestRottenBodyOfQuorumQueue(t *testing.T) {
	files := filled(t, 10)
	b, c := start(t, files)
	declare := topology.QueueDecl{Name: "critical", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: "quorum"}}}
	if _, err := c.DeclareQueue(declare); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		publish(t, c, "critical", body("critical", i))
	}
	if err := b.Node().Checkpoint(); err != nil {
		t.Fatal(err)
	}
	stop(t, b)
	if r := examined(t, files, SkipFrame); !r.Clean() || r.Messages != 40 {
		t.Fatalf("a clean directory: %+v", r)
	}
	path, offset := whereIs(t, files, "critical 3 ")
	rot(t, files, path, offset+3)
	r := examined(t, files, SkipFrame)
	if want := []Touched{{"/", "critical", 1}}; !slices.Equal(r.Unreadable, want) || r.Failed != "" {
		t.Fatalf("unreadable %v, failed %q, want %v", r.Unreadable, r.Failed, want)
	}
	repaired(t, files, SkipFrame)
	if got := bodies(t, files, "critical"); len(got) != 19 || slices.Contains(got, body("critical", 3)) {
		t.Errorf("%d messages are left", len(got))
	}
}

// crowded is a file system with room for this many more directories and links of an examination's tree, and for no
// copy in place of a link.
type crowded struct {
	vfs.FS
	left    int
	refused map[string]bool
}

func (f *crowded) full(name string) error {
	if !strings.Contains(name, examinationDir) {
		return nil
	}
	if f.left--; f.left >= 0 {
		return nil
	}
	f.refused[name] = true
	return fmt.Errorf("injected: %w", syscall.ENOSPC)
}

func (f *crowded) MkdirAll(dir string, mode fs.FileMode) error {
	if err := f.full(dir); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir, mode)
}

func (f *crowded) Link(was, is string) error {
	if err := f.full(is); err != nil {
		return err
	}
	return f.FS.Link(was, is)
}

func (f *crowded) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.refused[name] {
		return nil, fmt.Errorf("injected: %w", syscall.ENOSPC)
	}
	return f.FS.Create(name, c)
}

// An examination without enough disk space is an error, or says what it could not do. It leaves nothing behind, at
// whatever step of making its tree the disk is full.
func TestExaminationWithoutRoom(t *testing.T) {
	files := filled(t, 50)
	failed := 0
	for room, enough := 0, false; !enough; room++ {
		full := &crowded{FS: files, left: room, refused: map[string]bool{}}
		r, err := Examine(full, dataDir, SkipFrame)
		if _, err := files.Stat(files.PathJoin(dataDir, examinationDir)); err == nil {
			t.Fatalf("with room for %d steps the examination is left behind", room)
		}
		enough = full.left >= 0
		if fine := err == nil && r.Clean(); fine != enough {
			t.Errorf("with room for %d steps, which is enough: %v: %v, %+v", room, enough, err, r)
		}
		if err != nil {
			failed++
		}
	}
	if failed < 10 {
		t.Errorf("it has failed %d times: that shows little", failed)
	}
	if r := examined(t, files, SkipFrame); !r.Clean() {
		t.Errorf("afterwards: %+v", r)
	}
}

// An intact frame that makes no sense does not stop a node from starting. It is skipped and kept, the check names it,
// and after a repair no start meets it again.
func TestAFrameThatMakesNoSense(t *testing.T) {
	for _, how := range []How{SkipFrame, Cut} {
		files := filled(t, 10)
		j, err := journal.Open(journal.Options{FS: files, Dir: dataDir + "/journal", KeepDir: dataDir + "/keep", SegmentBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Recover(0, func(journal.Pos, []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		// A return to a moment before 1970.
		pos := j.Append([]byte{1, 4, 1, 1, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1})
		if err := errors.Join(j.Commit(pos), j.Close()); err != nil {
			t.Fatal(err)
		}
		r := examined(t, files, how)
		if r.Clean() || r.Failed != "" || r.Senseless != 1 || len(r.Damages) != 1 || r.Damages[0].Offset != pos.Offset() || !strings.HasSuffix(r.Damages[0].File, fmt.Sprintf("%010d.seg", pos.Segment())) {
			t.Fatalf("%s: %+v", how, r)
		}
		for _, q := range []string{"orders", "parked"} {
			if got := bodies(t, files, q); len(got) != 10 {
				t.Errorf("%s has %d messages, want 10", q, len(got))
			}
		}
		names, err := files.List(dataDir + "/senseless")
		if err != nil || len(names) != 2 {
			t.Errorf("set aside: %v, %v", names, err)
		}
		if text := repaired(t, files, how); !strings.Contains(text, "skips 1 frames") {
			t.Errorf("the repair says\n%s", text)
		}
		if got := bodies(t, files, "orders"); len(got) != 10 {
			t.Errorf("after the repair there are %d messages, want 10", len(got))
		}
	}
}

// The files that a repair has put into quarantine are there after a crash: the originals are changed.
func TestQuarantineIsThereAfterACrash(t *testing.T) {
	files := filled(t, 100)
	path, offset := whereIs(t, files, "orders 40 ")
	rot(t, files, path, offset)
	repaired(t, files, SkipFrame)
	after := files.CrashClone(vfs.CrashCloneCfg{})
	for _, want := range []string{reportFile, journalDir + "/" + files.PathBase(path)} {
		if _, err := after.Stat(files.PathJoin(dataDir, quarantineDir, "then", want)); err != nil {
			t.Error(err)
		}
	}
}

// checkpointed is filled with a checkpoint in the middle, and a quorum queue, critical, with as many messages.
func checkpointed(t *testing.T, n int) *vfs.MemFS {
	t.Helper()
	files := filled(t, n/2)
	b, c := start(t, files)
	declare := topology.QueueDecl{Name: "critical", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: "quorum"}}}
	if _, err := c.DeclareQueue(declare); err != nil {
		t.Fatal(err)
	}
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			publish(t, c, "critical", body("critical", i))
			if from > 0 {
				publish(t, c, "orders", body("orders", i))
				publish(t, c, "parked", body("parked", i))
			}
		}
	}
	fill(0, n/2)
	if err := b.Node().Checkpoint(); err != nil {
		t.Fatal(err)
	}
	fill(n/2, n)
	stop(t, b)
	return files
}

// lost removes a part of the data directory, or its content.
func lost(t *testing.T, files vfs.FS, part string, emptied bool) {
	t.Helper()
	path := files.PathJoin(dataDir, part)
	if err := files.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if emptied {
		if err := files.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r := examined(t, files, SkipFrame)
	if !slices.ContainsFunc(r.Damages, func(d Damage) bool { return d.File == path && strings.Contains(d.What, "missing") }) {
		t.Errorf("the check does not name %s: %+v", path, r.Damages)
	}
	if r.Failed != "" {
		t.Errorf("the repair is not possible: %s", r.Failed)
	}
}

// all returns the bodies of queues after a start, in the order of the queues.
func all(t *testing.T, files vfs.FS) map[string][]string {
	t.Helper()
	b, c := start(t, files)
	defer stop(t, b)
	var names []message.QueueName
	b.Read(func(s *topology.State, _ *auth.Users) {
		for _, v := range s.VHosts() {
			for _, q := range v.Queues() {
				names = append(names, q.Name)
			}
		}
	})
	found := map[string][]string{}
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		err := c.Peek(name, 0, func(s *broker.Shown) bool {
			found[string(name)] = append(found[string(name)], string(s.Body))
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// The declarations are lost, and with them the names of queues: all messages are there, in queues that are declared
// anew.
func TestLostDeclarations(t *testing.T) {
	for _, parts := range [][]string{{stateDir}, {stateDir, stateLogDir}, {stateLogDir}} {
		for _, emptied := range []bool{false, true} {
			t.Run(fmt.Sprint(parts, emptied), func(t *testing.T) {
				files := checkpointed(t, 100)
				for _, part := range parts {
					lost(t, files, part, emptied)
				}
				out := repaired(t, files, SkipFrame)
				count := map[string]int{}
				for name, bodies := range all(t, files) {
					for i, text := range bodies {
						kind, _, _ := strings.Cut(text, " ")
						if count[kind]++; text != body(kind, i) {
							t.Fatalf("message %d of %s is %.20q", i, name, text)
						}
					}
				}
				if count["orders"] != 100 || count["parked"] != 100 || count["critical"] != 100 {
					t.Errorf("found %v, want 100 of each\n%s", count, out)
				}
			})
		}
	}
}

// Damage in the log of declarations loses names, but no messages.
func TestDamagedDeclarationsLoseNoMessages(t *testing.T) {
	for _, how := range []How{SkipFrame, Cut} {
		files := checkpointed(t, 20)
		path, offset := whereIs(t, files, `"name":"orders"`)
		rot(t, files, path, offset)
		out := repaired(t, files, how)
		count := map[string]int{}
		for _, bodies := range all(t, files) {
			for _, text := range bodies {
				kind, _, _ := strings.Cut(text, " ")
				count[kind]++
			}
		}
		if count["orders"] != 20 || count["parked"] != 20 || count["critical"] != 20 {
			t.Errorf("%s: found %v, want 20 of each\n%s", how, count, out)
		}
	}
}

// A directory without its index is as it was if the journal has everything.
func TestLostIndex(t *testing.T) {
	files := filled(t, 200)
	lost(t, files, indexDir, true)
	repaired(t, files, SkipFrame)
	found := all(t, files)
	if len(found["orders"]) != 200 || len(found["parked"]) != 200 {
		t.Errorf("orders has %d, parked %d messages; want 200 of each", len(found["orders"]), len(found["parked"]))
	}
}

// A missing part is reported once, however many messages were in it: the lines that matter are not below hundreds of
// others.
func TestWhatIsMissingIsToldOnce(t *testing.T) {
	files := checkpointed(t, 200)
	if err := files.RemoveAll(files.PathJoin(dataDir, keepDir)); err != nil {
		t.Fatal(err)
	}
	r := examined(t, files, SkipFrame)
	if len(r.Damages) != 1 || r.Damages[0].File != files.PathJoin(dataDir, keepDir) || len(r.Unreadable) < 2 {
		t.Errorf("found %+v, unreadable %v, want keep/ once and the queues", r.Damages, r.Unreadable)
	}

	files = checkpointed(t, 200)
	path, _ := whereIs(t, files, "orders 10 ")
	if err := files.Remove(path); err != nil {
		t.Fatal(err)
	}
	r = examined(t, files, SkipFrame)
	if len(r.Damages) != 1 || r.Damages[0].File != path || !slices.Equal(r.Damages[0].Held, r.Unreadable) || len(r.Unreadable) < 2 {
		t.Errorf("found %+v, unreadable %v, want the file once with what it takes of each queue", r.Damages, r.Unreadable)
	}
}

// The content of keep/, or of the journal, is lost with it; everything else is there.
func TestLostBodies(t *testing.T) {
	for _, part := range []string{keepDir, journalDir} {
		t.Run(part, func(t *testing.T) {
			files := checkpointed(t, 200)
			lost(t, files, part, false)
			out := repaired(t, files, SkipFrame)
			found := all(t, files)
			for _, q := range []string{"orders", "parked"} {
				if n := len(found[q]); n == 0 || n >= 200 {
					t.Errorf("%s has %d messages\n%s", q, n, out)
				}
				for _, text := range found[q] {
					if !strings.HasPrefix(text, q+" ") || len(text) < 1000 {
						t.Fatalf("%s: a message that is lost came back as %.20q", q, text)
					}
				}
			}
		})
	}
}

// A table of the index or of the declarations is damaged. A start names the file and the command, a check finds the
// damage, and a repair moves the part away and makes it anew, as if it were missing. No output contains Pebble's
// stacks.
func TestDamagedTables(t *testing.T) {
	whole := vfs.NewCrashableMem()
	b, c := start(t, whole)
	if err := b.CreateDefault(broker.Default{VHost: "/", User: "guest", Password: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"orders", "parked"} {
		if _, err := c.DeclareQueue(topology.QueueDecl{Name: message.QueueName(q), Durable: true}); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			publish(t, c, q, body(q, i))
		}
	}
	if err := b.Node().Checkpoint(); err != nil {
		t.Fatal(err)
	}
	stop(t, b)
	told := func(what, text string) {
		t.Helper()
		if strings.Contains(text, ".go:") || strings.Contains(text, "attached stack") {
			t.Errorf("%s has a stack:\n%s", what, text)
		}
	}
	for _, part := range []string{indexDir, stateDir} {
		names, err := whole.List(whole.PathJoin(dataDir, part))
		if err != nil {
			t.Fatal(err)
		}
		tables := 0
		for _, name := range names {
			if !strings.HasSuffix(name, ".sst") {
				continue
			}
			tables++
			path := whole.PathJoin(dataDir, part, name)
			files := whole.CrashClone(vfs.CrashCloneCfg{})
			rot(t, files, path, 10)
			b, err := broker.Open(broker.Options{FS: files, Dir: dataDir})
			if err == nil {
				t.Errorf("%s: a start skips it", path)
				stop(t, b)
				continue
			}
			if told("the start", err.Error()); !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "journal check") {
				t.Errorf("the start says %v", err)
			}
			r := examined(t, files, SkipFrame)
			if r.Clean() || r.Failed != "" || r.Damages[0].File != path {
				t.Fatalf("%s: found %+v", path, r)
			}
			out := repaired(t, files, SkipFrame)
			told("the repair", out)
			count := map[string]int{}
			for _, bodies := range all(t, files) {
				for _, text := range bodies {
					kind, _, _ := strings.Cut(text, " ")
					count[kind]++
				}
			}
			if count["orders"] != 10 || count["parked"] != 10 {
				t.Errorf("%s: found %v, want 10 of each\n%s", path, count, out)
			}
			if b := read(t, files, files.PathJoin(dataDir, quarantineDir, "then", part, name)); len(b) == 0 {
				t.Error("the damaged table is not in quarantine")
			}
		}
		if tables == 0 {
			t.Errorf("%s has no tables", part)
		}
	}
}

// The same for a message that a consumer had when the node was killed.
func TestRottenBodyOfQuorumQueueAtAConsumer(t *testing.T) {
	files := filled(t, 10)
	b, c := start(t, files)
	declare := topology.QueueDecl{Name: "critical", Durable: true, Arguments: amqp091.Table{{Key: "x-queue-type", Value: "quorum"}}}
	if _, err := c.DeclareQueue(declare); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		publish(t, c, "critical", body("critical", i))
	}
	for range 5 {
		if _, ok, err := c.Get("critical", false); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := b.Node().Checkpoint(); err != nil {
		t.Fatal(err)
	}
	clone := files.CrashClone(vfs.CrashCloneCfg{})
	stop(t, b)
	path, offset := whereIs(t, clone, "critical 3 ")
	rot(t, clone, path, offset+3)
	repaired(t, clone, SkipFrame)
	if got := bodies(t, clone, "critical"); len(got) != 19 || slices.Contains(got, body("critical", 3)) {
		t.Errorf("%d messages are left", len(got))
	}
}
