package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bartleby.mq/internal/core/message"
	"bartleby.mq/internal/core/mutation"
)

// Whatever goes at once, no record of it is larger than a frame of the store's log; together they say all.
func TestWhatLeavesIsToldInSeveralRecords(t *testing.T) {
	for _, n := range []int{0, 1, 3000} {
		var changes []mutation.Change
		for i := range n {
			changes = append(changes, mutation.Change{Key: []byte(exchangeKey("v", "x"+message.ExchangeName(longName(i))))})
		}
		changes = append(changes, mutation.Change{Key: []byte("topology/policy/v/p")}, mutation.Change{Key: []byte(queueKey("v", "made")), Value: []byte("{}")})
		ends := Ends(changes)
		if len(ends) != n {
			t.Fatalf("%d ends, want %d", len(ends), n)
		}
		l := loader{state: New(Options{})}
		keys := map[string]bool{}
		for _, mark := range Leaving(7, ends) {
			if len(mark.Value) > 2*markBytes || keys[string(mark.Key)] {
				t.Errorf("record %s has %d bytes", mark.Key, len(mark.Value))
			}
			keys[string(mark.Key)] = true
			if err := l.read(leavingKind, string(mark.Key), mark.Value); err != nil {
				t.Fatal(err)
			}
		}
		var told []string
		for end := range l.leaving {
			told = append(told, end)
		}
		slices.Sort(told)
		slices.Sort(ends)
		if !slices.Equal(told, ends) {
			t.Errorf("%d ends are told of, want %d", len(told), len(ends))
		}
	}
}

// longName is a long name, different for each i.
func longName(i int) string { return fmt.Sprint(strings.Repeat("\u00e9", 120), i) }
