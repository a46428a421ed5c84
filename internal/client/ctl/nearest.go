package ctl

import "github.com/spf13/cobra"

// maxDistance is how many letters a name may be off to be suggested.
const maxDistance = 3

// nearest is the verb whose name is closest to what was typed, "" if none is close.
func nearest(root *cobra.Command, typed string) string {
	best, least := "", min(maxDistance, max(1, len(typed)/2))+1
	for _, c := range root.Commands() {
		if d := distance(typed, c.Name()); !c.Hidden && d < least {
			best, least = c.Name(), d
		}
	}
	return best
}

// distance is how many letters must be put in, taken out or replaced to make b of a
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
