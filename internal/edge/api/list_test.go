package api

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// counted is a list of n objects that counts how many of them are made.
func counted(n int, made *int, at func(i int)) list {
	return list{n: n, name: func(i int) string { return fmt.Sprint(i) }, item: func(i int) map[string]any {
		*made++
		at(i)
		return map[string]any{"i": n - i, "name": fmt.Sprint(i), "inner": map[string]any{"a": i, "b": i}}
	}}
}

func reduced(object map[string]any, wanted columns) any { return wanted.of(object) }

// Nobody reads an answer whose client has gone, and a node that stops waits for who makes it.
func TestAListEndsSoonAfterItsClientHasGone(t *testing.T) {
	for _, query := range []string{"", "sort=i", "columns=name", "page=1&sort=i"} {
		ctx, leave := context.WithCancel(context.Background())
		made := 0
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		l := counted(10*stride, &made, func(i int) {
			if i == stride+1 {
				leave()
			}
		})
		if _, bad := l.page(ctx, values, reduced); bad != nobodyWaits || made > 2*stride {
			t.Errorf("%q: %v after %d of %d objects", query, bad, made, 10*stride)
		}
		leave()
	}
}

// The column that a list is sorted by is read once of each object, and equal ones stay as they were.
func TestASortedListMakesEachObjectOnce(t *testing.T) {
	made := 0
	page, bad := counted(100, &made, func(int) {}).page(context.Background(), url.Values{"sort": {"inner.nothing"}}, reduced)
	if bad != nil {
		t.Fatal(bad)
	}
	if first := page.([]any)[0].(map[string]any)["name"]; made != 100 || first != "0" {
		t.Errorf("%d objects were made, the first shown is %v", made, first)
	}
}

// BR-15.10: each column is looked for once, and there is a bound.
func TestColumnsAreDistinctAndBounded(t *testing.T) {
	c, bad := newColumns("b"+strings.Repeat(",a,a.x,a", 5000), false)
	if bad != nil || len(c) != 3 {
		t.Errorf("three columns named often are %d, %v", len(c), bad)
	}
	var many []string
	for i := range maxColumns + 1 {
		many = append(many, fmt.Sprint("c", i))
	}
	if _, bad = newColumns(strings.Join(many, ","), false); bad == nil || !strings.Contains(bad.Error(), "the limit is") {
		t.Errorf("more than may be named: %v", bad)
	}
	if _, bad = newColumns(strings.Join(many[1:], ","), false); bad != nil {
		t.Error(bad)
	}
}

// What a list shows may be shared with others: it is chosen from, and never written to. The race
// detector sees it if it is.
func TestChoosingColumnsWritesToNothingThatItChoosesFrom(t *testing.T) {
	shared := map[string]any{"inner": map[string]any{"a": 1, "b": map[string]any{"c": 2}}}
	for _, text := range []string{"inner,inner.a,inner.b,inner.b.c", "inner.b.c,inner.a,inner"} {
		c, bad := newColumns(text, false)
		if bad != nil {
			t.Fatal(bad)
		}
		// Two at once: only so is a write that changes nothing seen.
		done := make(chan map[string]any)
		go func() { done <- c.of(shared) }()
		mine := c.of(shared)
		<-done
		if inner := mine["inner"].(map[string]any); len(inner) != 2 || inner["a"] != 1 {
			t.Errorf("%s: %v", text, mine)
		}
	}
	c, _ := newColumns("inner.b.c,inner.a", false)
	if got := fmt.Sprint(c.of(shared)); got != "map[inner:map[a:1 b:map[c:2]]]" {
		t.Errorf("a choice of inner ones: %s", got)
	}
}
