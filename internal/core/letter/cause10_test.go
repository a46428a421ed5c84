package letter_test

import (
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/convert"
	"bartleby.mq/internal/core/deadletter"
	"bartleby.mq/internal/core/letter"
	"bartleby.mq/internal/wire/amqp10"
)

const trace10 = "java.lang.IllegalStateException: no customer 4711\n\tat shop.Orders.handle(Orders.java:7)"

func annotated10(pairs ...string) []byte {
	encoded := [][]byte{}
	for i := range pairs {
		if i%2 == 0 {
			encoded = append(encoded, sym10(pairs[i]))
		} else {
			encoded = append(encoded, str10(pairs[i]))
		}
	}
	return mapOf(amqp10.DescriptorMessageAnnotations, encoded...)
}

func merged10(t *testing.T, pairs ...string) string {
	t.Helper()
	merged, err := convert.OutcomeAnnotations(amqp10.MustValue(annotated10(pairs...)).Underlying())
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

// Annotations say why a message died as headers do: those of an outcome, also if the message died of its delivery limit, and those with
// which it was published. An outcome's go first.
func TestCausesFromAnnotations(t *testing.T) {
	told := []string{"x-exception-message", "no customer 4711", "x-exception-stacktrace", trace10}
	whole := letter.Cause{Class: "java.lang.IllegalStateException", Error: "no customer 4711", Detail: trace10, From: "spring"}
	for name, c := range map[string]struct {
		published []byte
		merged    string
		reason    deadletter.Reason
		want      letter.Cause
	}{
		"an outcome, rejected":           {nil, merged10(t, told...), deadletter.Rejected, whole},
		"an outcome, delivery limit":     {nil, merged10(t, told...), deadletter.DeliveryLimit, whole},
		"published":                      {annotated10(told...), "", deadletter.Rejected, whole},
		"an outcome after one published": {annotated10("x-exception-message", "older", "x-exception-fqcn", "Older"), merged10(t, told...), deadletter.Rejected, whole},
		"the trace alone":                {annotated10("x-exception-message", "older"), merged10(t, "x-exception-stacktrace", trace10), deadletter.Rejected, letter.Cause{Class: whole.Class, Detail: trace10, From: "spring"}},
		"of nothing":                     {nil, merged10(t, "x-note", "n"), deadletter.Rejected, letter.Cause{}},
	} {
		rec := record10(t, slices.Concat(c.published, bodies10["data"]))
		history := died(1000, func(h *deadletter.History) { h.Annotations, h.Deaths[0].Reason = c.merged, c.reason })
		l, ok := letter.NewReader(nil).Read(rec, history)
		if !ok {
			t.Fatalf("%s: it is no letter", name)
		}
		if got := l.WholeCause(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if key := l.Group(); key.Class != c.want.Class {
			t.Errorf("%s: the group's class is %q", name, key.Class)
		}
	}
}

// A message that came back with annotations of an outcome, and has not died, is no letter.
func TestAnnotationsAloneMakeNoLetter(t *testing.T) {
	h := deadletter.History{Annotations: merged10(t, "x-exception-message", "m")}
	if _, ok := letter.NewReader(nil).Read(record10(t, full10(bodies10["data"])), h.Append(nil)); ok {
		t.Error("it is a letter")
	}
}

// Conditions see annotations of outcomes, and masks hide them, as those of headers.
func TestAnnotationsAreAsHeaders(t *testing.T) {
	rec := record10(t, bodies10["data"])
	history := died(1000, func(h *deadletter.History) {
		h.Annotations = merged10(t, "x-exception-message", "no customer 4711", "x-tenant", "t4")
	})
	q, err := letter.ParseQuery("/", map[string][]string{"where": {"header.x-tenant=t4"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := letter.NewReader(nil).Read(rec, history)
	if !q.Match(l) {
		t.Error("the condition does not hold")
	}
	mask, err := letter.NewMask(letter.MaskRules{Headers: []string{"x-exception-message"}})
	if err != nil {
		t.Fatal(err)
	}
	if l, _ = letter.NewReader(nil).Masked(mask).Read(rec, history); strings.Contains(l.Cause().Error, "4711") {
		t.Error(l.Cause().Error)
	}
}
