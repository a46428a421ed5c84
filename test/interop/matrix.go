package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is what became of a cell.
type result string

const (
	passed result = "ok"
	failed result = "FAILED"
	absent result = "absent" // the language is not to be had here
	ours   result = "ours"   // only Bartleby has it, and this was another broker
)

// printMatrix prints clients as rows and the stories that several clients tell as columns;
// the stories that a client has for itself stand at the end of its row.
func printMatrix(out io.Writer, clients []client, results map[cell]result) {
	tellers := map[string]int{}
	var columns []string // in the order in which they are first told
	for _, c := range clients {
		for _, s := range c.stories {
			tellers[s.name]++
			if tellers[s.name] == 2 {
				columns = append(columns, s.name)
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nclient\t%s\tof its own\n", strings.Join(columns, "\t"))
	for _, c := range clients {
		row := []string{c.name}
		for _, name := range columns {
			r, played := results[cell{c.name, name}]
			if !played {
				r = "-"
			}
			row = append(row, string(r))
		}
		var own []string
		for _, s := range c.stories {
			if !slices.Contains(columns, s.name) {
				own = append(own, s.name+" "+string(results[cell{c.name, s.name}]))
			}
		}
		fmt.Fprintf(w, "%s\t%s\n", strings.Join(row, "\t"), strings.Join(own, ", "))
	}
	_ = w.Flush()
	fmt.Fprintln(out)
}

// count counts the cells by what became of them.
func count(results map[cell]result) map[result]int {
	n := map[result]int{}
	for _, r := range results {
		n[r]++
	}
	return n
}
