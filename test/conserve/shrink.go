package conserve

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shrink leaves operations out as long as what is left still fails: halves first, then ever
// smaller pieces. fails plays what it is given, more than once if chance has a part in it.
func shrink(ops []op, end time.Time, fails func([]op) bool) []op {
	for size := max(1, len(ops)/2); ; size /= 2 {
		for from := 0; from < len(ops); {
			if time.Now().After(end) {
				return ops
			}
			fewer := slices.Delete(slices.Clone(ops), from, min(from+size, len(ops)))
			if fails(fewer) {
				ops = fewer
			} else {
				from += size
			}
		}
		if size <= 1 {
			return ops
		}
	}
}

var particulars = regexp.MustCompile(`\([^)]*\)|\[[^\]]*\]|".*?"|; seen:.*|; nobody has.*|[a-z]*[0-9][0-9.]*[a-z]*`)

// kind is what a fault has in common with others of its kind: its words without names,
// numbers and particulars.
func kind(fault string) string {
	return strings.Join(strings.Fields(particulars.ReplaceAllString(fault, "")), " ")
}

// list shows which operations of an episode there are, as parse reads it.
func list(ops []op) string {
	var parts []string
	for i := 0; i < len(ops); {
		k := i
		for k+1 < len(ops) && ops[k+1].index == ops[k].index+1 {
			k++
		}
		if k == i {
			parts = append(parts, strconv.Itoa(ops[i].index))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ops[i].index, ops[k].index))
		}
		i = k + 1
	}
	return strings.Join(parts, ",")
}

// parse chooses operations by a list of numbers and ranges.
func parse(text string, ops []op) (chosen []op, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		first, err := strconv.Atoi(from)
		if err != nil {
			return nil, err
		}
		last, err := strconv.Atoi(to)
		if err != nil {
			return nil, err
		}
		for i := first; i <= last && i < len(ops); i++ {
			chosen = append(chosen, ops[i])
		}
	}
	return chosen, nil
}
