package rescue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"bartleby.mq/internal/amqp091"
	"bartleby.mq/internal/broker"
	"bartleby.mq/internal/journal"
	"bartleby.mq/internal/message"
	"bartleby.mq/internal/partition"
	"bartleby.mq/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dataDir = "data"

// start opens a broker on files; small segments make for several.
func start(t *testing.T, files vfs.FS) (*broker.Broker, *broker.Connection) {
	t.Helper()
	b, err := broker.Open(broker.Options{FS: files, Dir: dataDir, Partitions: 2, Storage: broker.Storage{SegmentBytes: 64 << 10}})
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

// filled is a data directory with n messages in each of two queues; their bodies
// tell queue and number.
func filled(t *testing.T, n int) *vfs.MemFS {
	t.Helper()
	files := vfs.NewMem()
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

// bodies are what a queue holds after a start.
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
		if err != nil {
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
	if r, err := Repair(files, dataDir, RepairOptions{How: how, Name: "then"}, &out); err != nil || r.Clean() {
		t.Fatalf("the dry run: %v\n%s", err, &out)
	}
	for path, text := range snapshot(t, files) {
		if before[path] != text {
			t.Errorf("a dry run changed %s", path)
		}
	}
	out.Reset()
	if _, err := Repair(files, dataDir, RepairOptions{How: how, Apply: true, Name: "then"}, &out); err != nil {
		t.Fatalf("the repair: %v\n%s", err, &out)
	}
	if _, err := files.Stat(files.PathJoin(dataDir, quarantineDir, "then", reportFile)); err != nil {
		t.Error(err)
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

// A start says which command tells more, and changes nothing.
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

// One frame is damaged: skipping it loses one message, cutting all that came after.
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

// A segment that is gone altogether, or whose header is.
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

// A body that a checkpoint refers to and that has rotted: no start reads its frame, but
// the message is named and dropped.
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

// A kept file that is missing takes its messages along, and no others.
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

// A message whose publish is lost, and which has died since: skipping takes it out
// of the place that it went to as well, and touches no other.
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

// The same in a quorum queue, whose log is not to have gaps.
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
