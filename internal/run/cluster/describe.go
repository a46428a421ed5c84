package cluster

import (
	"fmt"
	"strings"
)

// DescribeFrame says in a line what a frame of a driver holds, for people.
func DescribeFrame(payload []byte) string {
	f, err := readFrame(0, payload)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "group %d:", f.group)
	if h := f.hard; h != nil {
		fmt.Fprintf(&b, " term %d, vote %d, commit %d;", h.term, h.vote, h.commit)
	}
	if s := f.snapshot; s != nil {
		fmt.Fprintf(&b, " snapshot at index %d of term %d, %d bytes;", s.index, s.term, len(s.data))
	}
	if n := len(f.entries); n > 0 {
		bytes, members := 0, 0
		for i := range f.entries {
			bytes += len(f.entries[i].Data)
			if f.entries[i].kind == kindMembers {
				members++
			}
		}
		first, last := &f.entries[0], &f.entries[n-1]
		fmt.Fprintf(&b, " entries %d to %d of terms %d to %d, %d bytes", first.Index, last.Index, first.Term, last.Term, bytes)
		if members > 0 {
			fmt.Fprintf(&b, ", %d of them changes of members", members)
		}
	}
	return strings.TrimSuffix(b.String(), ";")
}
