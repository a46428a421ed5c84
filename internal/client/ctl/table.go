package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// formatters are the values of --formatter.
var formatters = []string{"table", "json", "csv", "pretty_table"}

// column is a column of a listing: its name, and the value in an object of the API.
type column struct {
	name  string
	value func(object) any
}

// field is a column with the same name in the API and in the listing.
func field(name string) column {
	return column{name, func(o object) any { return o[name] }}
}

func fields(names ...string) (list []column) {
	for _, n := range names {
		list = append(list, field(n))
	}
	return list
}

// columnHelp is the part of a verb's help that names its columns.
func columnHelp(known []column, standard ...string) string {
	return "Columns: " + strings.Join(names(known), ", ") + ".\n\nWithout columns it shows " + strings.Join(standard, ", ") + "."
}

// chooseColumns returns the requested columns, or the default ones.
func chooseColumns(args []string, known []column, standard ...string) ([]column, error) {
	if len(args) == 0 {
		args = standard
	}
	var chosen []column
	var unknown []string
	for _, a := range args {
		for _, name := range strings.Split(a, ",") {
			found := false
			for _, c := range known {
				if c.name == name {
					chosen, found = append(chosen, c), true
					break
				}
			}
			if !found {
				unknown = append(unknown, name)
			}
		}
	}
	if unknown != nil {
		return nil, badArgument("Info key(s) %s are not supported\nThe columns are: %s", strings.Join(unknown, ","), strings.Join(names(known), ", "))
	}
	return chosen, nil
}

// list prints a banner and objects in the chosen format.
func (i *invocation) list(banner string, columns []column, items []object) error {
	switch i.formatter {
	case "json":
		return i.listJSON(columns, items)
	case "csv":
		return i.listCSV(columns, items)
	}
	if banner != "" {
		i.say("%s", banner)
	}
	if len(items) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(items)+1)
	if !i.silent && !i.noHeaders {
		rows = append(rows, names(columns))
	}
	for _, o := range items {
		row := make([]string, len(columns))
		for k, c := range columns {
			row[k] = cell(c.value(o))
		}
		rows = append(rows, row)
	}
	if i.formatter == "pretty_table" {
		i.printBox(rows)
		return nil
	}
	for _, row := range rows {
		i.print("%s", strings.Join(row, "\t"))
	}
	return nil
}

func names(columns []column) []string {
	list := make([]string, len(columns))
	for k, c := range columns {
		list[k] = c.name
	}
	return list
}

var controls = strings.NewReplacer("\t", `\t`, "\n", `\n`, "\r", `\r`)

// cell prints a value in a table: text unchanged, everything else as a term.
func cell(v any) string {
	if s, ok := v.(string); ok {
		return controls.Replace(s)
	}
	return controls.Replace(term(v))
}

// printBox frames a table; the first row is its header.
func (i *invocation) printBox(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for k, text := range row {
			widths[k] = max(widths[k], utf8.RuneCountInString(text))
		}
	}
	line := func(left, middle, right string) {
		parts := make([]string, len(widths))
		for k, w := range widths {
			parts[k] = strings.Repeat("─", w+2)
		}
		i.print("%s", left+strings.Join(parts, middle)+right)
	}
	line("┌", "┬", "┐")
	for n, row := range rows {
		var b strings.Builder
		for k, text := range row {
			b.WriteString("│ " + text + strings.Repeat(" ", widths[k]-utf8.RuneCountInString(text)+1))
		}
		i.print("%s", b.String()+"│")
		if n < len(rows)-1 {
			line("├", "┼", "┤")
		}
	}
	line("└", "┴", "┘")
}

// listJSON prints an array, an object a line, keys in the order of the columns.
func (i *invocation) listJSON(columns []column, items []object) error {
	var b bytes.Buffer
	b.WriteString("[\n")
	for n, o := range items {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		for k, c := range columns {
			if k > 0 {
				b.WriteByte(',')
			}
			text, err := encode(jsonForm(c.value(o)))
			if err != nil {
				return fail(exitSoftware, "column %s: %v", c.name, err)
			}
			fmt.Fprintf(&b, "%q:%s", c.name, text)
		}
		b.WriteString("}\n")
	}
	b.WriteString("]")
	i.print("%s", b.String())
	return nil
}

// encode is JSON without escapes for HTML.
func encode(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// listCSV prints every value in quotes, as rabbitmqctl does.
func (i *invocation) listCSV(columns []column, items []object) error {
	line := func(texts []string) {
		for k, t := range texts {
			texts[k] = `"` + strings.ReplaceAll(t, `"`, `""`) + `"`
		}
		i.print("%s", strings.Join(texts, ","))
	}
	if !i.silent && !i.noHeaders {
		line(names(columns))
	}
	for _, o := range items {
		row := make([]string, len(columns))
		for k, c := range columns {
			v := c.value(o)
			if s, ok := v.(string); ok {
				row[k] = s
			} else {
				row[k] = term(v)
			}
		}
		line(row)
	}
	return nil
}
