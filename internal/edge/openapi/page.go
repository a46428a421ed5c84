package openapi

import (
	"encoding/base64"
	"slices"
	"strings"
)

// maxPage is the maximal and the default size of a page.
const maxPage = 100

// page is the requested part of a list.
type page struct {
	size  int
	after string // the element before the first, by its place; "": none
}

// page reads the requested part; sizeParameter is the name of its size.
func (f *fields) page(sizeParameter string, size int64) page {
	if n, given := f.integer(sizeParameter, 1, maxPage); given {
		size = n
	}
	after, err := base64.RawURLEncoding.DecodeString(f.p["NextToken"])
	if err != nil {
		f.refuse(invalid("NextToken"))
	}
	return page{int(size), string(after)}
}

// cut returns the elements of a page and the token of the next, "" if there is none.
// place orders the elements and identifies each: an element that is added or removed
// between two requests moves no other element to another page.
func cut[T any](p page, all []T, place func(T) string) (some []T, next string) {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(place(a), place(b)) })
	if p.after != "" {
		i, found := slices.BinarySearchFunc(all, p.after, func(e T, after string) int { return strings.Compare(place(e), after) })
		if found {
			i++
		}
		all = all[i:]
	}
	if len(all) > p.size {
		all = all[:p.size]
		next = base64.RawURLEncoding.EncodeToString([]byte(place(all[len(all)-1])))
	}
	return all, next
}
