package share

import "slices"

// line is a line in which owners take turns, and what waits for one owner goes in order of arrival. Whoever has it guards it.
//
//	Invariant: next has each key of waiting once; no list in waiting is empty.
type line[Owner, Turn comparable] struct {
	waiting map[Owner][]Turn
	next    []Owner // in the order of their turns
}

func newLine[Owner, Turn comparable]() line[Owner, Turn] {
	return line[Owner, Turn]{waiting: map[Owner][]Turn{}}
}

// join puts a turn of an owner at the end of its own.
func (l *line[Owner, Turn]) join(of Owner, turn Turn) {
	if len(l.waiting[of]) == 0 {
		l.next = append(l.next, of)
	}
	l.waiting[of] = append(l.waiting[of], turn)
}

// quit takes a turn out, and says whether it was there.
func (l *line[Owner, Turn]) quit(of Owner, turn Turn) bool {
	i := slices.Index(l.waiting[of], turn)
	if i < 0 {
		return false
	}
	if l.waiting[of] = slices.Delete(l.waiting[of], i, i+1); len(l.waiting[of]) == 0 {
		delete(l.waiting, of)
		l.next = slices.DeleteFunc(l.next, func(o Owner) bool { return o == of })
	}
	return true
}

// serve takes out who is next. Its owner goes behind the others. ok is false if nobody waits.
func (l *line[Owner, Turn]) serve() (of Owner, turn Turn, ok bool) {
	if len(l.next) == 0 {
		return of, turn, false
	}
	of = l.next[0]
	l.next = append(slices.Delete(l.next, 0, 1), of)
	turn = l.waiting[of][0]
	return of, turn, l.quit(of, turn)
}
