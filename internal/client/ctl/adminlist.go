package ctl

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// listing is something that list or show shows.
type listing struct {
	name    string
	byVHost bool     // --vhost chooses
	columns []string // that are shown if none are named; nil is all
	json    []string // keys whose objects are one column, as JSON
}

var listable = []listing{
	{name: "connections", columns: []string{"name", "user", "channels"}},
	{name: "channels", columns: []string{"name", "user"}},
	{name: "consumers", byVHost: true},
	{name: "exchanges", byVHost: true, columns: []string{"name", "type"}},
	{name: "queues", byVHost: true, columns: []string{"name", "messages"}},
	{name: "bindings", byVHost: true, columns: []string{"source", "destination", "routing_key"}},
	{name: "users"},
	{name: "vhosts", columns: []string{"name", "messages"}},
	{name: "permissions"},
	{name: "nodes", columns: []string{"name", "type", "mem_used"}},
	{name: "parameters", json: []string{"value"}},
	{name: "policies", json: []string{"definition"}},
	{name: "operator_policies", json: []string{"definition"}},
	{name: "vhost_limits", json: []string{"value"}},
}

var showable = []listing{
	{name: "overview", columns: []string{"rabbitmq_version", "cluster_name", "queue_totals.messages", "object_totals.queues"}},
}

func listingNames(listings []listing) (names []string) {
	for _, l := range listings {
		names = append(names, l.name)
	}
	return names
}

// list is list and show.
func (a *admin) list(verb string, listings []listing) error {
	if len(a.args) == 0 {
		return adminUsageError("Type not specified")
	}
	i := slices.IndexFunc(listings, func(l listing) bool { return l.name == a.args[0] })
	if i < 0 {
		return adminUsageError("Don't know how to %s %s", verb, a.args[0])
	}
	show, err := a.format()
	if err != nil {
		return err
	}
	l := listings[i]
	if len(a.args) > 1 {
		l.columns = a.args[1:]
	} else if a.depth != "" || strings.Contains(a.formatName, "json") {
		l.columns = nil // all, as deep as was said
	}
	at := "/" + strings.ReplaceAll(l.name, "_", "-")
	if l.byVHost && a.vhost != "" {
		at += "/" + quote(a.vhost)
	}
	var query []string
	if l.columns != nil {
		query = append(query, "columns="+strings.ReplaceAll(url.QueryEscape(strings.Join(l.columns, ",")), "%2C", ","))
	}
	if a.sort != "" {
		query = append(query, "sort="+url.QueryEscape(a.sort))
	}
	if a.sortReverse {
		query = append(query, "sort_reverse=true")
	}
	if query != nil {
		at += "?" + strings.Join(query, "&")
	}
	answer, err := a.send(http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	if verb == "show" {
		answer = "[" + answer + "]" // one object
	}
	return show(&l, answer)
}

// adminFormats are the values of --format, and how they show a table; the first two show JSON.
var adminFormats = []struct {
	name string
	show func(*admin, []string, [][]string)
}{
	{"raw_json", nil}, {"pretty_json", nil},
	{"tsv", (*admin).showTSV}, {"long", (*admin).showLong}, {"table", (*admin).showTable}, {"kvp", (*admin).showPairs}, {"bash", (*admin).showNames},
}

// format is what shows an answer of the API in the chosen format. It is asked for before the request, which may take messages.
func (a *admin) format() (func(l *listing, answer string) error, error) {
	depth := 1
	if a.depth != "" {
		var err error
		if depth, err = strconv.Atoi(a.depth); err != nil {
			return nil, adminUsageError("Depth %s is not a number", a.depth)
		}
	}
	for _, f := range adminFormats {
		if f.name != a.formatName {
			continue
		}
		return func(l *listing, answer string) error {
			if f.name == "raw_json" {
				a.print("%s", answer)
				return nil
			}
			v, err := parseOrdered(answer)
			items, ok := v.([]any)
			if err != nil || !ok {
				return adminError("cannot read the answer: %s", answer)
			}
			if f.name == "pretty_json" {
				a.print("%s", prettyJSON(items))
				return nil
			}
			columns, rows := l.table(items, depth)
			if len(rows) == 0 {
				a.say("No items")
				return nil
			}
			f.show(a, columns, rows)
			return nil
		}, nil
	}
	return nil, adminUsageError("Format %s not recognised", a.formatName)
}

// promoted are the columns that come first.
var promoted = []string{"vhost", "name", "type", "source", "destination", "destination_type", "routing_key"}

// table has a row for each item. Objects inside items become columns with a dot in their names: to any depth if columns are
// named, otherwise to that depth.
func (l *listing) table(items []any, depth int) (columns []string, rows [][]string) {
	columns = l.columns
	if columns == nil {
		seen := map[string]bool{}
		for _, item := range items {
			l.walk("", item, depth, func(column, _ string) { seen[column] = true })
		}
		for column := range seen {
			columns = append(columns, column)
		}
		rank := func(column string) int {
			return (slices.Index(promoted, column) + len(promoted) + 1) % (len(promoted) + 1)
		}
		slices.SortFunc(columns, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	} else {
		depth = maxDepth
	}
	at := make(map[string]int, len(columns))
	for i, column := range columns {
		at[column] = i
	}
	for _, item := range items {
		row := make([]string, len(columns))
		l.walk("", item, depth, func(column, text string) {
			if i, ok := at[column]; ok {
				row[i] = text
			}
		})
		rows = append(rows, row)
	}
	return columns, rows
}

// maxDepth is deeper than answers are.
const maxDepth = 1 << 20

// walk calls visit for each value of an item.
func (l *listing) walk(prefix string, item any, depth int, visit func(column, text string)) {
	members, _ := item.(ordered)
	for _, m := range members {
		column := m.key
		if prefix != "" {
			column = prefix + "." + m.key
		}
		switch v := m.value.(type) {
		case ordered:
			if slices.Contains(l.json, m.key) {
				visit(column, pythonJSON(v))
			} else if depth > 1 {
				l.walk(column, v, depth-1, visit)
			}
		case []any:
			visit(column, listText(v))
		default:
			visit(column, pythonText(v))
		}
	}
}

// listText is a list in a column: words if it is of text only, otherwise JSON.
func listText(list []any) string {
	words := make([]string, len(list))
	for i, v := range list {
		word, ok := v.(string)
		if !ok {
			return pythonJSON(list)
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

func (a *admin) showTSV(columns []string, rows [][]string) {
	a.say("%s", strings.Join(columns, "\t"))
	for _, row := range rows {
		a.print("%s", strings.Join(row, "\t"))
	}
}

func (a *admin) showLong(columns []string, rows [][]string) {
	width := 0
	for _, column := range columns {
		width = max(width, utf8.RuneCountInString(column))
	}
	rule := "\n" + strings.Repeat("-", 80) + "\n"
	a.print("%s", rule)
	for _, row := range rows {
		for i, text := range row {
			a.print("%*s: %s", width, columns[i], text)
		}
		a.print("%s", rule)
	}
}

func (a *admin) showPairs(columns []string, rows [][]string) {
	for _, row := range rows {
		pairs := make([]string, len(row))
		for i, text := range row {
			pairs[i] = columns[i] + `="` + text + `"`
		}
		a.print("%s", strings.Join(pairs, " "))
	}
}

// showNames is for completion in shells.
func (a *admin) showNames(columns []string, rows [][]string) {
	i := slices.Index(columns, "name")
	if i < 0 {
		return
	}
	names := make([]string, len(rows))
	for k, row := range rows {
		names[k] = row[i]
	}
	a.print("%s", strings.Join(names, " "))
}

func (a *admin) showTable(columns []string, rows [][]string) {
	rows = append([][]string{columns}, rows...)
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	var rule strings.Builder
	for _, w := range widths {
		rule.WriteString("+" + strings.Repeat("-", w+2))
	}
	rule.WriteString("+")
	for n, row := range rows {
		if n < 2 {
			a.print("%s", rule.String())
		}
		var line strings.Builder
		for i, text := range row {
			left := 0
			if n == 0 {
				left = (widths[i] - utf8.RuneCountInString(text)) / 2 // headers stand in the middle
			}
			fmt.Fprintf(&line, "| %*s%-*s ", left, "", widths[i]-left, text)
		}
		a.print("%s|", line.String())
	}
	a.print("%s", rule.String())
}
