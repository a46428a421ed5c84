package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"bartleby.mq/internal/core/expression"
)

// list is an answer of many objects, which can be paged, filtered, sorted and reduced to
// columns (BR-15.10). An object is made only when it is shown or needed for sorting.
type list struct {
	n    int
	name func(i int) string
	item func(i int) map[string]any
}

// listOf makes a list of values that are already sorted.
func listOf[T any](values []T, name func(T) string, item func(T) map[string]any) list {
	return list{
		n:    len(values),
		name: func(i int) string { return name(values[i]) },
		item: func(i int) map[string]any { return item(values[i]) },
	}
}

// objects makes a list of finished objects.
func objects(items []map[string]any) list {
	return list{
		n:    len(items),
		name: func(i int) string { s, _ := items[i]["name"].(string); return s },
		item: func(i int) map[string]any { return items[i] },
	}
}

const (
	defaultPageSize = 100
	maxPageSize     = 500
	maxNameFilter   = 1024 // bytes of a regular expression
)

// stride is how many objects are made between two checks whether the client still waits.
const stride = 1000

// nobodyWaits ends an answer because its client has disconnected, or the node stops.
var nobodyWaits = &failure{http.StatusServiceUnavailable, "gone", "the request was ended before its answer was made"}

// ended says, once in a stride, whether the client of an answer with i objects no longer waits.
func ended(ctx context.Context, i int) bool { return i%stride == 0 && ctx.Err() != nil }

// page returns all objects, or the page that the query requests, each as shown makes it.
func (l list) page(ctx context.Context, query url.Values, shown func(map[string]any, columns) any) (any, *failure) {
	paged := query.Has("page")
	number, size, bad := pageOf(query)
	if bad != nil {
		return nil, bad
	}
	wanted, bad := columnsOf(query)
	if bad != nil {
		return nil, bad
	}
	chosen := make([]int, 0, l.n)
	matches, bad := nameFilter(query)
	if bad != nil {
		return nil, bad
	}
	for i := range l.n {
		if ended(ctx, i) {
			return nil, nobodyWaits
		}
		if !paged || matches == nil || matches(l.name(i)) {
			chosen = append(chosen, i)
		}
	}
	item := func(i int) any { return shown(l.item(i), wanted) }
	if by := query.Get("sort"); by != "" {
		made, bad := l.sort(ctx, chosen, by, func(object map[string]any) any { return shown(object, wanted) })
		if bad != nil {
			return nil, bad
		}
		item = func(i int) any { return made[i] }
	}
	if query.Get("sort_reverse") == "true" {
		slices.Reverse(chosen)
	}
	filtered := len(chosen)
	pages := (filtered + size - 1) / size
	if paged {
		if number > 1 && number > pages {
			return nil, &failure{http.StatusBadRequest, "page_out_of_range",
				fmt.Sprintf("Page out of range, page: %d page size: %d, len: %d", number, size, filtered)}
		}
		chosen = chosen[min(filtered, (number-1)*size):min(filtered, number*size)]
	}
	items := make([]any, 0, len(chosen))
	for n, i := range chosen {
		if ended(ctx, n) {
			return nil, nobodyWaits
		}
		items = append(items, item(i))
	}
	if !paged {
		return items, nil
	}
	return map[string]any{
		"filtered_count": filtered, "item_count": len(items), "items": items, "page": number,
		"page_count": pages, "page_size": size, "total_count": l.n,
	}, nil
}

// sort sorts objects by a column, which it reads once for each, and returns the shown objects.
func (l list) sort(ctx context.Context, chosen []int, by string, shown func(map[string]any) any) ([]any, *failure) {
	keys, made := make([]sortKey, l.n), make([]any, l.n)
	for n, i := range chosen {
		if ended(ctx, n) {
			return nil, nobodyWaits
		}
		object := l.item(i)
		keys[i], made[i] = sortKeyOf(lookup(object, by)), shown(object)
	}
	slices.SortFunc(chosen, func(a, b int) int { return cmp.Or(keys[a].compare(&keys[b]), a-b) })
	return made, nil
}

func pageOf(query url.Values) (number, size int, bad *failure) {
	number, size = 1, defaultPageSize
	shownSize := "undefined"
	for _, p := range []struct {
		name string
		to   *int
	}{{"page", &number}, {"page_size", &size}} {
		if query.Has(p.name) {
			n, err := strconv.Atoi(query.Get(p.name))
			if err != nil {
				return 0, 0, badRequest("Pagination parameters are invalid")
			}
			*p.to = n
		}
	}
	if !query.Has("page") {
		return 1, defaultPageSize, nil
	}
	if query.Has("page_size") {
		shownSize = strconv.Itoa(size)
	}
	if number < 1 || size < 1 || size > maxPageSize {
		return 0, 0, &failure{http.StatusBadRequest, "invalid_pagination_parameters",
			fmt.Sprintf("Invalid pagination parameters: page number %d, page size %s", number, shownSize)}
	}
	return number, size, nil
}

// nameFilter returns the filter for names, nil if there is none.
func nameFilter(query url.Values) (matches func(string) bool, bad *failure) {
	want := query.Get("name")
	if want == "" {
		return nil, nil
	}
	if query.Get("use_regex") == "true" {
		if len(want) > maxNameFilter {
			return nil, &failure{http.StatusBadRequest, "invalid_pagination_parameters", "name filter regex is too long"}
		}
		re, err := expression.CompileName("(?i)" + want)
		if tooLarge := (*expression.TooLarge)(nil); errors.As(err, &tooLarge) {
			return nil, badRequest(err.Error())
		}
		if err != nil {
			return func(string) bool { return false }, nil
		}
		return re.MatchString, nil
	}
	want = strings.ToLower(want)
	return func(name string) bool { return strings.Contains(strings.ToLower(name), want) }, nil
}

// lookup finds a value by its path, as "message_stats.publish".
func lookup(object map[string]any, path string) any {
	for {
		if v, ok := object[path]; ok {
			return v
		}
		first, rest, more := strings.Cut(path, ".")
		next, ok := object[first].(map[string]any)
		if !more || !ok {
			return nil
		}
		object, path = next, rest
	}
}

// sortKey is what an object is sorted by.
type sortKey struct {
	there, isNumber bool
	number          float64
	text            string
}

func sortKeyOf(v any) sortKey {
	k := sortKey{there: v != nil}
	if k.there {
		k.number, k.isNumber = numberOf(v)
		k.text = columnText(v)
	}
	return k
}

// compare orders the values of a column: missing ones first, then numbers, then texts.
func (k *sortKey) compare(o *sortKey) int {
	switch {
	case k.isNumber && o.isNumber:
		return cmp.Compare(k.number, o.number)
	case !k.there || !o.there:
		return boolInt(k.there) - boolInt(o.there)
	}
	return strings.Compare(k.text, o.text)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func numberOf(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	case decimal:
		return float64(v), true
	}
	return 0, false
}

func columnText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// maxColumns is the maximal number of different columns in a request: more than any object has.
const maxColumns = 200

// columns are the paths of the shown values of an object, each once; nil: all.
type columns []string

// columnsOf are the columns that a query names.
func columnsOf(query url.Values) (columns, *failure) { return columnsIn(query, false) }

// topColumnsOf is columnsOf as RabbitMQ does it for the overview: a path selects the whole value of its
// first name.
func topColumnsOf(query url.Values) (columns, *failure) {
	return columnsIn(query, true)
}

func columnsIn(query url.Values, top bool) (columns, *failure) {
	if !query.Has("columns") {
		return nil, nil
	}
	return newColumns(query.Get("columns"), top)
}

func newColumns(text string, top bool) (columns, *failure) {
	c := columns(strings.Split(text, ","))
	if top {
		for i, path := range c {
			c[i], _, _ = strings.Cut(path, ".")
		}
	}
	slices.SortFunc(c, func(a, b string) int { return strings.Compare(b, a) })
	c = slices.Compact(c)
	if len(c) > maxColumns {
		return nil, badRequest(fmt.Sprintf("columns has %d different names; the limit is %d", len(c), maxColumns))
	}
	return c, nil
}

// of reduces an object to the columns.
func (c columns) of(object map[string]any) map[string]any {
	if c == nil {
		return object
	}
	chosen, below := map[string]any{}, map[string]columns{}
	for _, path := range c {
		if v, ok := object[path]; ok {
			chosen[path] = v
		} else if first, rest, more := strings.Cut(path, "."); more {
			below[first] = append(below[first], rest)
		}
	}
	for name, rest := range below {
		if _, whole := chosen[name]; whole {
			continue
		}
		if v, ok := object[name]; ok {
			chosen[name] = rest.ofValue(v)
		}
	}
	return chosen
}

// ofValue reduces what a path leads to: an object or each object of a list. Other values stay whole.
func (c columns) ofValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return c.of(v)
	case []map[string]any:
		reduced := make([]any, len(v))
		for i, object := range v {
			reduced[i] = c.of(object)
		}
		return reduced
	}
	return v
}
