package topology

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"bartleby.mq/internal/core/routing"
	"bartleby.mq/internal/wire/amqp091"
)

// nested is a table with n tables in it, each inside the other, and text in the innermost.
func nested(n int, text string) amqp091.Table {
	t := amqp091.Table{arg("k", text)}
	for range n - 1 {
		t = amqp091.Table{arg("k", t)}
	}
	return t
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What cannot be read again, or takes long to be written, is refused before anything is changed.
func TestArgumentsThatCannotBeKeptAreRefused(t *testing.T) {
	for name, args := range map[string]amqp091.Table{
		"101 deep": nested(amqp091.MaxDepth+1, ""), "2,000 deep around 200 KB": nested(2000, strings.Repeat("x", 200<<10)), "9,000 deep": nested(9000, ""),
		"arrays": {arg("a", amqp091.Array{nested(amqp091.MaxDepth-1, "")})}, "large": nested(1, strings.Repeat("x", maxTable)),
	} {
		f := newFixture(t, Options{})
		f.queue(durableQueue("q"))
		f.save()
		q := durableQueue("deep")
		q.Arguments = args
		x := durableExchange("deep", routing.Fanout)
		x.Arguments = args
		b := toQueue("amq.fanout", "q", "")
		b.Arguments = args
		revision := f.revision
		for what, err := range map[string]error{
			"queue":    func() error { _, _, err := f.DeclareQueue(q, nil); return err }(),
			"exchange": func() error { _, _, err := f.DeclareExchange(x, nil); return err }(),
			"binding":  func() error { _, _, err := f.Bind(b, nil); return err }(),
		} {
			if refused, ok := err.(*Error); !ok || refused.Kind != PreconditionFailed || !strings.Contains(refused.Text, "arguments") {
				t.Errorf("%s, %s: got %v", name, what, err)
			}
		}
		if _, ok := f.vhost().Queue("deep"); ok || f.revision != revision || len(f.TakeChanges()) != 0 {
			t.Errorf("%s: something was changed", name)
		}
	}
}

func TestArgumentsAsDeepAsTheyMayBeAreKept(t *testing.T) {
	f := newFixture(t, Options{})
	q := durableQueue("q")
	q.Arguments = append(nested(amqp091.MaxDepth, "text"), arg("x-queue-type", ""))
	f.queue(q)
	f = f.restart()
	back, _ := f.vhost().Queue("q")
	want := append(nested(amqp091.MaxDepth, "text"), arg("x-queue-type", "classic"))
	if got := amqp091.AppendTable(nil, back.Arguments); string(got) != string(amqp091.AppendTable(nil, want)) {
		t.Errorf("the arguments came back as %v", back.Arguments)
	}
}

// The cost of writing and reading is that of the bytes, not of the bytes for each table around them.
func TestNestedArgumentsAreWrittenAndReadInOneWalk(t *testing.T) {
	const size = 64 << 10
	table := nested(amqp091.MaxDepth, strings.Repeat("x", size))
	var text []byte
	if n := allocated(func() {
		var err error
		if text, err = appendFields(nil, table); err != nil {
			t.Fatal(err)
		}
	}); n > 16*size {
		t.Errorf("%d bytes are allocated to write %d", n, len(text))
	}
	text = append(append([]byte{'['}, text...), ']')
	if n := allocated(func() {
		var back TypedTable
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
	}); n > 16*size {
		t.Errorf("%d bytes are allocated to read %d", n, len(text))
	}
}

// What an earlier version has stored is read, though it is deeper than may be now.
func TestStoredArgumentsMayBeDeeper(t *testing.T) {
	f := newFixture(t, Options{})
	f.save()
	list := strings.Repeat(`[["A",`, 2000) + "[]" + strings.Repeat("]]", 2000)
	f.store[queueKey(vh, "q")] = []byte(`{"v":1,"vhost":"v","name":"q","arguments":[["x-queue-type","S","classic"],["a","A",` + list + `]],"incarnation":7}`)
	f = f.restart()
	q, ok := f.vhost().Queue("q")
	if !ok {
		t.Fatal("the queue is gone")
	}
	if value, ok := q.Arguments.Get("a"); !ok || len(value.(amqp091.Array)) != 1 {
		t.Errorf("its argument is %v", value)
	}
}

func TestParseJSONIsBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", 2000) + strings.Repeat("]", 2000), strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), "\"\xff\""} {
		if _, err := ParseJSON([]byte(text)); err == nil {
			t.Errorf("%.20q was taken", text)
		}
	}
	for _, text := range []string{strings.Repeat("[", 100) + strings.Repeat("]", 100), `"` + strings.Repeat("[", 500) + `"`, `"\"` + strings.Repeat("[", 500) + `\\"`} {
		if _, err := ParseJSON([]byte(text)); err != nil {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5,"\"[",null]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ParseJSON(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseJSON(again); err != nil {
			t.Fatalf("%s was read, %s was not: %v", text, again, err)
		}
	})
}
