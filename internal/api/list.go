package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"bartleby.mq/internal/topology"
)

// list is an answer of many objects, which can be paged, filtered, sorted and cut
// to columns (BR-15.10). Objects are made only when they are shown or sorted by.
type list struct {
	n    int
	name func(i int) string
	item func(i int) map[string]any
}

// listOf makes a list of values that are in order already.
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
)

// page returns what the query asks for: all objects, or one page of them.
func (l list) page(query url.Values) (any, *failure) {
	paged := query.Get("page") != ""
	number, size, bad := pageOf(query)
	if bad != nil {
		return nil, bad
	}
	chosen := make([]int, 0, l.n)
	matches, bad := nameFilter(query)
	if bad != nil {
		return nil, bad
	}
	for i := range l.n {
		if !paged || matches == nil || matches(l.name(i)) {
			chosen = append(chosen, i)
		}
	}
	items := map[int]map[string]any{}
	item := func(i int) map[string]any {
		if items[i] == nil {
			items[i] = l.item(i)
		}
		return items[i]
	}
	if by := query.Get("sort"); by != "" {
		slices.SortStableFunc(chosen, func(a, b int) int { return compareValues(lookup(item(a), by), lookup(item(b), by)) })
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
	columns := query.Get("columns")
	shown := make([]any, 0, len(chosen))
	for _, i := range chosen {
		shown = append(shown, chooseColumns(item(i), columns))
	}
	if !paged {
		return shown, nil
	}
	return map[string]any{
		"filtered_count": filtered, "item_count": len(shown), "items": shown, "page": number,
		"page_count": pages, "page_size": size, "total_count": l.n,
	}, nil
}

func pageOf(query url.Values) (number, size int, bad *failure) {
	number, size = 1, defaultPageSize
	for _, p := range []struct {
		name string
		to   *int
	}{{"page", &number}, {"page_size", &size}} {
		if text := query.Get(p.name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				return 0, 0, badRequest("Pagination parameters are invalid")
			}
			*p.to = n
		}
	}
	if number < 1 || size < 1 || size > maxPageSize {
		return 0, 0, &failure{http.StatusBadRequest, "invalid_pagination_parameters",
			fmt.Sprintf("Invalid pagination parameters: page number %d, page size %d", number, size)}
	}
	return number, size, nil
}

// nameFilter is the test that names must pass, nil if all do.
func nameFilter(query url.Values) (matches func(string) bool, bad *failure) {
	want := query.Get("name")
	if want == "" {
		return nil, nil
	}
	if query.Get("use_regex") == "true" {
		re, err := topology.CompilePattern("(?i)" + want)
		if tooLarge := (*topology.PatternTooLarge)(nil); errors.As(err, &tooLarge) {
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

// compareValues orders what may stand in a column: nothing first, then numbers,
// then texts.
func compareValues(a, b any) int {
	x, xIsNumber := numberOf(a)
	y, yIsNumber := numberOf(b)
	switch {
	case xIsNumber && yIsNumber:
		return cmp.Compare(x, y)
	case a == nil || b == nil:
		return boolInt(a != nil) - boolInt(b != nil)
	}
	return strings.Compare(columnText(a), columnText(b))
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

// chooseColumns cuts an object to the named columns, all of them if none is named.
func chooseColumns(object map[string]any, columns string) map[string]any {
	if columns == "" {
		return object
	}
	chosen := map[string]any{}
	for _, path := range strings.Split(columns, ",") {
		copyColumn(chosen, object, path)
	}
	return chosen
}

// chooseTopColumns is chooseColumns as RabbitMQ does it for the overview: a path
// chooses all of what its first name stands for.
func chooseTopColumns(object map[string]any, columns string) map[string]any {
	if columns == "" {
		return object
	}
	var names []string
	for path := range strings.SplitSeq(columns, ",") {
		first, _, _ := strings.Cut(path, ".")
		names = append(names, first)
	}
	return chooseColumns(object, strings.Join(names, ","))
}

func copyColumn(to, from map[string]any, path string) {
	if v, ok := from[path]; ok {
		to[path] = v
		return
	}
	first, rest, more := strings.Cut(path, ".")
	inner, ok := from[first].(map[string]any)
	if !more || !ok {
		return
	}
	target, ok := to[first].(map[string]any)
	if !ok {
		target = map[string]any{}
		to[first] = target
	}
	copyColumn(target, inner, rest)
}
