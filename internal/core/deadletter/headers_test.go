package deadletter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/wire/amqp091"
)

// death is a hop of a test: the message died in queue for reason, having been
// published to exchange with keys.
type death struct {
	queue      string
	reason     Reason
	exchange   string
	keys       []string
	expiration int64 // -1: none
}

func record(deaths ...death) *History {
	h := new(History)
	for i, d := range deaths {
		h.Record(&Event{
			Queue: d.queue, Reason: d.reason, Time: int64(i+1)*1000 + 999, Expiration: d.expiration,
			Exchange: d.exchange, Keys: d.keys,
		})
	}
	return h
}

// show renders headers as the recorded transcripts of RabbitMQ do, times included.
func show(t testing.TB, fields []amqp091.RawField) (lines []string) {
	t.Helper()
	for _, f := range fields {
		table, err := amqp091.DecodeTable(append(append([]byte{byte(len(f.Key))}, f.Key...), f.Encoded...))
		if err != nil {
			t.Fatalf("header %s: %v", f.Key, err)
		}
		v := table[0].Value
		list, ok := v.(amqp091.Array)
		if !ok {
			lines = append(lines, fmt.Sprintf("%s = %s", f.Key, value(v)))
			continue
		}
		for i, e := range list {
			lines = append(lines, fmt.Sprintf("%s[%d] = %s", f.Key, i, value(e)))
		}
	}
	return lines
}

func value(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("str %q", v)
	case int64:
		return fmt.Sprintf("i64 %d", v)
	case amqp091.Timestamp:
		return fmt.Sprintf("time %d", v)
	case amqp091.Array:
		var list []string
		for _, e := range v {
			list = append(list, value(e))
		}
		return "[" + strings.Join(list, ", ") + "]"
	case amqp091.Table: // in the order of the wire
		var list []string
		for _, f := range v {
			list = append(list, f.Key+"="+value(f.Value))
		}
		return "{" + strings.Join(list, ", ") + "}"
	}
	return fmt.Sprintf("%T", v)
}

// DL-7.1 to DL-7.5, with the values of the transcripts named.
func TestHeaders(t *testing.T) {
	key := func(k ...string) []string { return k }
	for _, c := range []struct {
		name   string
		deaths []death
		want   []string
	}{
		{"DL-7.1 one death (dead-letter/entry-moves-to-front)", []death{{"a", Rejected, "", key("a"), -1}}, []string{
			`x-death[0] = {count=i64 1, reason=str "rejected", queue=str "a", time=time 1, exchange=str "", routing-keys=[str "a"]}`,
			`x-first-death-exchange = str ""`, `x-first-death-queue = str "a"`, `x-first-death-reason = str "rejected"`,
			`x-last-death-exchange = str ""`, `x-last-death-queue = str "a"`, `x-last-death-reason = str "rejected"`,
		}},
		{"DL-7.2 a repeat moves to the front and keeps its first values (dead-letter/entry-moves-to-front)", []death{
			{"a", Rejected, "", key("a"), -1}, {"b", Rejected, "", key("b"), -1}, {"c", Rejected, "", key("c"), -1}, {"a", Rejected, "x", key("other"), -1},
		}, []string{
			`x-death[0] = {count=i64 2, reason=str "rejected", queue=str "a", time=time 1, exchange=str "", routing-keys=[str "a"]}`,
			`x-death[1] = {count=i64 1, reason=str "rejected", queue=str "c", time=time 3, exchange=str "", routing-keys=[str "c"]}`,
			`x-death[2] = {count=i64 1, reason=str "rejected", queue=str "b", time=time 2, exchange=str "", routing-keys=[str "b"]}`,
			`x-first-death-exchange = str ""`, `x-first-death-queue = str "a"`, `x-first-death-reason = str "rejected"`,
			`x-last-death-exchange = str "x"`, `x-last-death-queue = str "a"`, `x-last-death-reason = str "rejected"`,
		}},
		{"DL-7.2 another reason in the same queue is another entry", []death{
			{"a", Expired, "", key("a"), -1}, {"a", MaxLen, "", key("a"), -1},
		}, []string{
			`x-death[0] = {count=i64 1, reason=str "maxlen", queue=str "a", time=time 2, exchange=str "", routing-keys=[str "a"]}`,
			`x-death[1] = {count=i64 1, reason=str "expired", queue=str "a", time=time 1, exchange=str "", routing-keys=[str "a"]}`,
			`x-first-death-exchange = str ""`, `x-first-death-queue = str "a"`, `x-first-death-reason = str "expired"`,
			`x-last-death-exchange = str ""`, `x-last-death-queue = str "a"`, `x-last-death-reason = str "maxlen"`,
		}},
		{"DL-7.3 the key and the CC keys (dead-letter/cc-and-bcc-in-x-death)", []death{{"src", Rejected, "", key("src", "x", "y"), -1}}, []string{
			`x-death[0] = {count=i64 1, reason=str "rejected", queue=str "src", time=time 1, exchange=str "", routing-keys=[str "src", str "x", str "y"]}`,
			`x-first-death-exchange = str ""`, `x-first-death-queue = str "src"`, `x-first-death-reason = str "rejected"`,
			`x-last-death-exchange = str ""`, `x-last-death-queue = str "src"`, `x-last-death-reason = str "rejected"`,
		}},
		{"DL-7.4 the message's own TTL (patterns/staged-backoff-by-expiration)", []death{
			{"retry", Expired, "", key("retry"), 600}, {"jobs", DeliveryLimit, "work", key("job"), -1},
		}, []string{
			`x-death[0] = {count=i64 1, reason=str "delivery_limit", queue=str "jobs", time=time 2, exchange=str "work", routing-keys=[str "job"]}`,
			`x-death[1] = {original-expiration=str "600", count=i64 1, reason=str "expired", queue=str "retry", time=time 1, exchange=str "", routing-keys=[str "retry"]}`,
			`x-first-death-exchange = str ""`, `x-first-death-queue = str "retry"`, `x-first-death-reason = str "expired"`,
			`x-last-death-exchange = str "work"`, `x-last-death-queue = str "jobs"`, `x-last-death-reason = str "delivery_limit"`,
		}},
		{"DL-7.4 an own TTL of 0", []death{{"q", Expired, "", nil, 0}}, []string{
			`x-death[0] = {original-expiration=str "0", count=i64 1, reason=str "expired", queue=str "q", time=time 1, exchange=str "", routing-keys=[]}`,
			`x-first-death-exchange = str ""`, `x-first-death-queue = str "q"`, `x-first-death-reason = str "expired"`,
			`x-last-death-exchange = str ""`, `x-last-death-queue = str "q"`, `x-last-death-reason = str "expired"`,
		}},
		{"no death, no headers", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := record(c.deaths...)
			fields := h.Headers()
			if got := show(t, fields); !slices.Equal(got, c.want) {
				t.Errorf("headers are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if !slices.IsSortedFunc(fields, func(a, b amqp091.RawField) int { return strings.Compare(a.Key, b.Key) }) {
				t.Error("headers are not sorted by key (DL-6.15)")
			}
			// DL-6.8: all but x-death can be matched.
			var matchable []string
			for _, l := range c.want {
				if !strings.HasPrefix(l, "x-death") {
					matchable = append(matchable, l)
				}
			}
			if got := show(t, h.Matchable()); !slices.Equal(got, matchable) {
				t.Errorf("a headers exchange sees %q, want %q", got, matchable)
			}
		})
	}
}

// DL-9.1 to DL-9.4: which deaths close a cycle when the last target is entered.
func TestCycles(t *testing.T) {
	d := func(queue string, reason Reason) death { return death{queue, reason, "", []string{"k"}, -1} }
	for _, c := range []struct {
		rule   string
		deaths []death // oldest first
		target string
		cycle  bool
	}{
		{"DL-9.3 expired to itself", []death{d("a", Expired)}, "a", true},
		{"DL-9.3 drop-head to itself", []death{d("a", MaxLen)}, "a", true},
		{"DL-9.3 a fanout to source and DLQ: the DLQ", []death{d("a", Expired)}, "dlq", false},
		{"DL-9.3 A to B the first time", []death{d("a", Expired)}, "b", false},
		{"DL-9.3 A and B with TTLs: the second entry into A", []death{d("a", Expired), d("b", Expired)}, "a", true},
		{"DL-9.3 maxlen, rejected, maxlen goes on", []death{d("a", MaxLen), d("b", Rejected), d("a", MaxLen)}, "b", false},
		{"DL-9.3 and on", []death{d("a", MaxLen), d("b", Rejected), d("a", MaxLen), d("b", Rejected), d("a", MaxLen)}, "b", false},
		{"DL-9.3 one rejection before the loop does not protect it", []death{d("x", Rejected), d("a", Expired), d("b", Expired)}, "a", true},
		{"DL-9.3 after a reject in A, expiry in B returns to A once", []death{d("a", Rejected), d("b", Expired)}, "a", false},
		{"DL-9.3 the next full round is cut", []death{d("a", Rejected), d("b", Expired), d("a", Expired), d("b", Expired)}, "a", true},
		{"DL-9.4 a delivery limit is no rejection", []death{d("main", Rejected), d("wait", Expired), d("main", DeliveryLimit)}, "wait", true},
		{"DL-19.1 delayed retry is no cycle", []death{d("main", Rejected), d("wait", Expired), d("main", Rejected), d("wait", Expired)}, "main", false},
		{"DL-19.3 staged backoff is no cycle", []death{d("main", Rejected), d("wait1", Expired), d("main", Rejected), d("wait2", Expired)}, "main", false},
		{"DL-9.2 a queue it never died in", []death{d("a", Expired), d("b", MaxLen)}, "c", false},
	} {
		if got := record(c.deaths...).ClosesCycle(c.target); got != c.cycle {
			t.Errorf("%s: entering %s closes a cycle: %v, want %v", c.rule, c.target, got, c.cycle)
		}
	}
}
